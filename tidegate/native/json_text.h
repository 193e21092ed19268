/* Strings of JSON: their ends and their text. Exactly what msgspec takes: it checks control characters and
 * escapes everywhere, UTF-8 only in declared strings.
 *
 * Positions are of the bytes of one value; NULL means that the value is rejected or left over. Nothing is read at `end`
 * or past it.
 */
#ifndef TIDEGATE_JSON_TEXT_H
#define TIDEGATE_JSON_TEXT_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "utf8.h"

#pragma GCC visibility push(hidden)

/* After the escape that begins here. */
const uint8_t *escape_end(const uint8_t *at, const uint8_t *end);

/* Writes the text of a string with valid escapes, which is never longer; returns its length. */
int32_t unescape(uint8_t *to, const uint8_t *from, const uint8_t *end);

/* Decodes base64, at most three bytes for four; returns their number, -1 if it is rejected. */
int32_t decode_base64(uint8_t *to, const uint8_t *from, const uint8_t *end);

#pragma GCC visibility pop

static inline bool is_digit(uint8_t byte)
{
    return (uint8_t)(byte - '0') < 10;
}

static inline bool is_space(uint8_t byte)
{
    return byte == ' ' || byte == '\n' || byte == '\r' || byte == '\t';
}

static inline const uint8_t *skip_space(const uint8_t *at, const uint8_t *end)
{
    while (at < end && UNLIKELY(is_space(*at)))
        at++;
    return at;
}

static inline bool is_plain(uint8_t byte, bool any)
{
    return byte != '"' && byte != '\\' && byte >= ' ' && (any || byte < 0x80);
}

/* The first byte from here that is a quote, a backslash, a control character, or, unless `any`, outside ASCII. */
static inline __attribute__((always_inline)) const uint8_t *plain_end(const uint8_t *at, const uint8_t *end, bool any)
{
#if defined(__SSE2__)
    for (; end - at >= 16; at += 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)at), last_control = _mm_set1_epi8(' ' - 1);
        __m128i quote = _mm_cmpeq_epi8(bytes, _mm_set1_epi8('"'));
        __m128i backslash = _mm_cmpeq_epi8(bytes, _mm_set1_epi8('\\'));
        __m128i control = _mm_cmpeq_epi8(_mm_min_epu8(bytes, last_control), bytes);
        int found = _mm_movemask_epi8(_mm_or_si128(_mm_or_si128(quote, backslash), control));
        found = any ? found : found | _mm_movemask_epi8(bytes);
        if (found != 0)
            return at + __builtin_ctz((unsigned)found);
    }
#endif
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    const uint64_t ones = 0x0101010101010101, tops = 0x8080808080808080;
    for (; end - at >= 8; at += 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        uint64_t quote = word ^ ones * '"', backslash = word ^ ones * '\\';
        uint64_t found = ((quote - ones) & ~quote) | ((backslash - ones) & ~backslash) | ((word - ones * ' ') & ~word);
        found = (any ? found : found | word) & tops;
        /* A byte after one that is found may be found by mistake, by the carry; the first never is. */
        if (found != 0)
            return at + (__builtin_ctzll(found) >> 3);
    }
#endif
    while (at < end && is_plain(*at, any))
        at++;
    return at;
}

/* The closing quote of a string, from after the opening one. With `any`, invalid UTF-8 is skipped. */
static inline __attribute__((always_inline)) const uint8_t *string_end(const uint8_t *at, const uint8_t *end, bool any,
                                                                       bool *escaped)
{
    *escaped = false;
    for (;;) {
        at = plain_end(at, end, any);
        if (UNLIKELY(at == end))
            return NULL;
        if (LIKELY(*at == '"'))
            return at;
        if (*at == '\\') {
            *escaped = true;
            at = escape_end(at, end);
        } else
            at = *at < ' ' ? NULL : utf8_end(at, end);
        if (UNLIKELY(at == NULL))
            return NULL;
    }
}

#endif
