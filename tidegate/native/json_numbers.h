/* Numbers and moments of JSON, as exact as msgspec and Python's Decimal: what is not certain is left to them.
 *
 * Functions that read return the position after what they have read, or NULL for what is refused or left over.
 */
#ifndef TIDEGATE_JSON_NUMBERS_H
#define TIDEGATE_JSON_NUMBERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "columns.h"
#include "json_text.h"

enum { DECIMAL_DIGITS_MAX = 38 };

#pragma GCC visibility push(hidden)

/* A number as it is written: `digits` times ten to the power of `exponent`. */
typedef struct {
    const uint8_t *start; /* after the sign */
    const uint8_t *stop;
    uint64_t digits; /* right if `count` is at most 19 */
    int32_t count;   /* of digits from the first that is not zero */
    int32_t exponent;
    bool negative;
    bool whole; /* without a point and an exponent */
} number;

const uint8_t *read_number(const uint8_t *at, const uint8_t *end, number *found);

/* The text of a number as decimals take it: also with a plus, leading zeros, and a point at either end. */
const uint8_t *read_number_text(const uint8_t *at, const uint8_t *end, number *found);

/* The nearest double. False where there is none or it is too near to none. */
bool double_of(const number *from, double *value);

/* The number times ten to the power of `scale`, if that is whole and has at most `precision` digits. */
bool decimal_of(const number *from, int32_t precision, int32_t scale, int128 *units);

/* Exponents up to DECIMAL_DIGITS_MAX. */
uint128 power_of_ten(int32_t exponent);

/* YYYY-MM-DD: days since 1970. */
bool read_date(const uint8_t *at, const uint8_t *end, int32_t *days);

/* RFC 3339: microseconds since 1970 in UTC. `zoned`: an offset is allowed. Years 1 and 9999 are left over. */
bool read_moment(const uint8_t *at, const uint8_t *end, bool zoned, int64_t *micros);

#pragma GCC visibility pop

/* Eight digits; bytes of zero count as zeros. */
static inline uint64_t eight_digits(uint64_t word)
{
    word = (word & 0x0f0f0f0f0f0f0f0f) * (10 * (1 << 8) + 1) >> 8; /* pairs of digits */
    word = (word & 0x00ff00ff00ff00ff) * (100 * (1 << 16) + 1) >> 16;
    return (word & 0x0000ffff0000ffff) * (10000 * ((uint64_t)1 << 32) + 1) >> 32;
}

/* Appends the digits that are here to `*sum`, which is right for at most 19 of them. */
static inline const uint8_t *read_digits(const uint8_t *at, const uint8_t *end, uint64_t *sum)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    static const uint32_t powers[] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000};
    while (end - at >= 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        /* A digit has a three in its upper half, also with six added. A carry spoils only what is after a byte that
         * is not a digit. */
        uint64_t other = ((word & 0xf0f0f0f0f0f0f0f0) ^ 0x3030303030303030) |
                         (((word + 0x0606060606060606) & 0xf0f0f0f0f0f0f0f0) ^ 0x3030303030303030);
        int digits = other == 0 ? 8 : __builtin_ctzll(other) >> 3;
        if (digits == 0)
            return at;
        *sum = *sum * powers[digits] + eight_digits(word << (64 - 8 * digits));
        at += digits;
        if (digits < 8)
            return at;
    }
#endif
    while (at < end && is_digit(*at))
        *sum = *sum * 10 + (uint64_t)(*at++ - '0');
    return at;
}

/* A number without point and exponent, which an int64 holds. */
static inline const uint8_t *read_integer(const uint8_t *at, const uint8_t *end, int64_t *value)
{
    bool negative = at < end && *at == '-';
    at += negative;
    const uint8_t *start = at;
    uint64_t digits = 0;
    at = read_digits(at, end, &digits);
    int64_t count = at - start;
    if (count == 0 || count > 19 || (count > 1 && *start == '0'))
        return NULL;
    if (at < end && (*at == '.' || (*at | 0x20) == 'e'))
        return NULL;
    if (digits > (uint64_t)INT64_MAX + negative)
        return NULL;
    *value = (int64_t)(negative ? 0 - digits : digits);
    return at;
}

#endif
