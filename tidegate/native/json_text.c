/* See json_text.h. */
#include "json_text.h"

enum { NO_DIGIT = 0x10000 };

static int32_t hex_digit(uint8_t byte)
{
    uint8_t lower = byte | 0x20;
    if (is_digit(byte))
        return byte - '0';
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : NO_DIGIT;
}

/* Of `XXXX` in an escape `\uXXXX`; -1 for what is none. */
static inline int32_t read_unit(const uint8_t *at, const uint8_t *end)
{
    if (end - at < 6 || at[0] != '\\' || at[1] != 'u')
        return -1;
    int32_t high = hex_digit(at[2]) << 4 | hex_digit(at[3]), low = hex_digit(at[4]) << 4 | hex_digit(at[5]);
    return (high | low) >= NO_DIGIT ? -1 : high << 8 | low;
}

static bool is_high(int32_t unit)
{
    return unit >= 0xd800 && unit < 0xdc00;
}

static bool is_low(int32_t unit)
{
    return unit >= 0xdc00 && unit < 0xe000;
}

const uint8_t *escape_end(const uint8_t *at, const uint8_t *end)
{
    if (end - at < 2)
        return NULL;
    if (at[1] != 'u')
        return at[1] != 0 && strchr("\"\\/bfnrt", at[1]) != NULL ? at + 2 : NULL;
    int32_t unit = read_unit(at, end);
    if (unit < 0 || is_low(unit))
        return NULL;
    if (!is_high(unit))
        return at + 6;
    return is_low(read_unit(at + 6, end)) ? at + 12 : NULL;
}

static uint8_t *write_character(uint8_t *to, uint32_t point)
{
    if (point < 0x80)
        *to++ = (uint8_t)point;
    else if (point < 0x800) {
        *to++ = (uint8_t)(0xc0 | point >> 6);
        *to++ = (uint8_t)(0x80 | (point & 0x3f));
    } else if (point < 0x10000) {
        *to++ = (uint8_t)(0xe0 | point >> 12);
        *to++ = (uint8_t)(0x80 | (point >> 6 & 0x3f));
        *to++ = (uint8_t)(0x80 | (point & 0x3f));
    } else {
        *to++ = (uint8_t)(0xf0 | point >> 18);
        *to++ = (uint8_t)(0x80 | (point >> 12 & 0x3f));
        *to++ = (uint8_t)(0x80 | (point >> 6 & 0x3f));
        *to++ = (uint8_t)(0x80 | (point & 0x3f));
    }
    return to;
}

static uint8_t simple_escape(uint8_t letter)
{
    switch (letter) {
    case 'b':
        return '\b';
    case 'f':
        return '\f';
    case 'n':
        return '\n';
    case 'r':
        return '\r';
    case 't':
        return '\t';
    default: /* a quote, a backslash, a slash */
        return letter;
    }
}

/* Writes the character of the escape at `*at`, which is valid, and moves `*at` past it. */
static uint8_t *write_escape(uint8_t *to, const uint8_t **at, const uint8_t *end)
{
    const uint8_t *from = *at;
    if (from[1] != 'u') {
        *at = from + 2;
        *to = simple_escape(from[1]);
        return to + 1;
    }
    uint32_t point = (uint32_t)read_unit(from, end);
    *at = from + 6;
    if (is_high((int32_t)point)) {
        point = 0x10000 + ((point - 0xd800) << 10) + ((uint32_t)read_unit(from + 6, end) - 0xdc00);
        *at = from + 12;
    }
    return write_character(to, point);
}

int32_t unescape(uint8_t *to, const uint8_t *from, const uint8_t *end)
{
    const uint8_t *begin = to;
    while (from < end) {
        if (*from == '\\') {
            to = write_escape(to, &from, end);
            continue;
        }
        const uint8_t *stop = plain_end(from, end, true);
        memcpy(to, from, (size_t)(stop - from));
        to += stop - from;
        from = stop;
    }
    return (int32_t)(to - begin);
}

static int sextet(uint8_t byte)
{
    if (byte >= 'A' && byte <= 'Z')
        return byte - 'A';
    if (byte >= 'a' && byte <= 'z')
        return byte - 'a' + 26;
    if (byte >= '0' && byte <= '9')
        return byte - '0' + 52;
    return byte == '+' ? 62 : byte == '/' ? 63 : -1;
}

/* The bytes of four letters; -1 where one is none. */
static int32_t quartet(const uint8_t *at)
{
    int a = sextet(at[0]), b = sextet(at[1]), c = sextet(at[2]), d = sextet(at[3]);
    return (a | b | c | d) < 0 ? -1 : a << 18 | b << 12 | c << 6 | d;
}

static int32_t write_bytes(uint8_t *to, int32_t bits, int32_t count)
{
    for (int32_t i = 0; i < count; i++)
        to[i] = (uint8_t)(bits >> (16 - 8 * i));
    return count;
}

int32_t decode_base64(uint8_t *to, const uint8_t *from, const uint8_t *end)
{
    int64_t length = end - from;
    if (length % 4 != 0)
        return -1;
    if (length == 0)
        return 0;
    int32_t written = 0;
    for (; end - from > 4; from += 4) {
        int32_t bits = quartet(from);
        if (bits < 0)
            return -1;
        written += write_bytes(to + written, bits, 3);
    }
    int padding = from[3] != '=' ? 0 : from[2] != '=' ? 1 : 2;
    uint8_t last[4] = {from[0], from[1], padding == 2 ? 'A' : from[2], padding > 0 ? 'A' : from[3]};
    int32_t bits = quartet(last);
    return bits < 0 ? -1 : written + write_bytes(to + written, bits, 3 - padding);
}
