/* Numbers and moments of JSON, as exact as msgspec and Python's Decimal: what is not certain is left to them.
 *
 * Functions that read return the position behind what they have read, or NULL for what is refused or left over.
 */
#ifndef TIDEGATE_JSON_NUMBERS_H
#define TIDEGATE_JSON_NUMBERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

__extension__ typedef __int128 int128;
__extension__ typedef unsigned __int128 uint128;

enum { DECIMAL_DIGITS_MAX = 38 };

#pragma GCC visibility push(hidden)

/* A number as it stands in the text: `digits` times ten to the power of `exponent`. */
typedef struct {
    const uint8_t *start; /* behind the sign */
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

/* YYYY-MM-DD: days since 1970. */
bool read_date(const uint8_t *at, const uint8_t *end, int32_t *days);

/* RFC 3339: microseconds since 1970 in UTC. `zoned`: an offset is allowed. Years 1 and 9999 are left over. */
bool read_moment(const uint8_t *at, const uint8_t *end, bool zoned, int64_t *micros);

#pragma GCC visibility pop

static inline bool is_digit(uint8_t byte)
{
    return (uint8_t)(byte - '0') < 10;
}

/* A number without point and exponent, which an int64 holds. */
static inline const uint8_t *read_integer(const uint8_t *at, const uint8_t *end, int64_t *value)
{
    bool negative = at < end && *at == '-';
    at += negative;
    const uint8_t *start = at;
    uint64_t digits = 0;
    while (at < end && is_digit(*at))
        digits = digits * 10 + (uint64_t)(*at++ - '0');
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
