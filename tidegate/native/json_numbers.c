/* See json_numbers.h. Dates and times are in json_moments.c. */
#define _GNU_SOURCE /* strtod_l */
#include "json_numbers.h"

#include <float.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#ifdef __APPLE__
#include <xlocale.h>
#endif

enum {
    WORD_DIGITS = 19,        /* that a uint64 holds, whatever they are */
    EXPONENT_DIGITS_MAX = 4, /* longer ones are left over: no type holds such a number, unless it is zero */
    EXPONENT_MAX = 300,      /* of a zero and of decimals */
    NUMBER_BYTES_MAX = 400,
    EXACT_POWER_MAX = 22, /* of ten that a double holds exactly */
};

static const double POWERS[EXACT_POWER_MAX + 1] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                                   1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                                   1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

static const uint64_t WORD_POWERS[WORD_DIGITS + 1] = {1u,
                                                      10u,
                                                      100u,
                                                      1000u,
                                                      10000u,
                                                      100000u,
                                                      1000000u,
                                                      10000000u,
                                                      100000000u,
                                                      1000000000u,
                                                      10000000000u,
                                                      100000000000u,
                                                      1000000000000u,
                                                      10000000000000u,
                                                      100000000000000u,
                                                      1000000000000000u,
                                                      10000000000000000u,
                                                      100000000000000000u,
                                                      1000000000000000000u,
                                                      10000000000000000000u};

static const uint8_t *read_exponent(const uint8_t *at, const uint8_t *end, int32_t *exponent)
{
    bool negative = at < end && *at == '-';
    at += at < end && (*at == '-' || *at == '+');
    uint64_t digits = 0;
    const uint8_t *start = at;
    at = read_digits(at, end, &digits);
    if (at == start || at - start > EXPONENT_DIGITS_MAX)
        return NULL;
    *exponent += negative ? -(int32_t)digits : (int32_t)digits;
    return at;
}

/* How many digits there are from the first that is not zero. */
static int32_t count_digits(const uint8_t *at, const uint8_t *end)
{
    while (at < end && (*at == '0' || *at == '.'))
        at++;
    int32_t count = 0;
    for (; at < end && (is_digit(*at) || *at == '.'); at++)
        count += *at != '.';
    return count;
}

static inline __attribute__((always_inline)) const uint8_t *read_any_number(const uint8_t *at, const uint8_t *end,
                                                                            bool text, number *found)
{
    found->negative = at < end && *at == '-';
    at += found->negative || (text && at < end && *at == '+');
    found->start = at;
    found->digits = 0;
    found->exponent = 0;
    at = read_digits(at, end, &found->digits);
    int64_t digits = at - found->start;
    if (!text && (digits == 0 || (digits > 1 && *found->start == '0')))
        return NULL;
    found->whole = true;
    if (at < end && *at == '.') {
        found->whole = false;
        const uint8_t *point = at;
        at = read_digits(at + 1, end, &found->digits);
        int64_t after = at - point - 1;
        if ((!text && after == 0) || after > NUMBER_BYTES_MAX)
            return NULL;
        found->exponent = -(int32_t)after;
        digits += after;
    }
    if (digits == 0 || digits > NUMBER_BYTES_MAX)
        return NULL;
    if (at < end && (*at | 0x20) == 'e') {
        found->whole = false;
        at = read_exponent(at + 1, end, &found->exponent);
        if (at == NULL)
            return NULL;
    }
    found->stop = at;
    found->count = digits <= WORD_DIGITS ? (int32_t)digits : count_digits(found->start, at);
    return at;
}

const uint8_t *read_number(const uint8_t *at, const uint8_t *end, number *found)
{
    return read_any_number(at, end, false, found);
}

const uint8_t *read_number_text(const uint8_t *at, const uint8_t *end, number *found)
{
    return read_any_number(at, end, true, found);
}

static double power_of_two(int power)
{
    uint64_t bits = (uint64_t)(power + DBL_MAX_EXP - 1) << (DBL_MANT_DIG - 1);
    double value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* A whole number times two to the power of `power`, to the nearest double, halves to the even one; `more`: it is a
 * little larger than that, and has more bits than a double. The result is neither subnormal nor infinite.
 */
static double round_to_double(uint128 whole, int power, bool more)
{
    uint64_t high = (uint64_t)(whole >> 64), low = (uint64_t)whole;
    int bits = high != 0 ? 128 - __builtin_clzll(high) : 64 - __builtin_clzll(low);
    int dropped = bits - DBL_MANT_DIG;
    if (dropped <= 0)
        return (double)low * power_of_two(power);
    uint64_t kept = (uint64_t)(whole >> dropped);
    uint128 rest = whole & (((uint128)1 << dropped) - 1), half = (uint128)1 << (dropped - 1);
    if (rest > half || (rest == half && (more || (kept & 1) != 0)))
        kept++;
    return (double)kept * power_of_two(power + dropped);
}

/* Exact, with whole numbers: `digits` and the power of ten have at most 64 bits each, so a product has 128, and a
 * quotient of `digits`, shifted to 128 bits, has at least 64: more than a double keeps.
 */
static double scale_word(uint64_t digits, int32_t exponent)
{
    if (exponent >= 0)
        return round_to_double((uint128)digits * WORD_POWERS[exponent], 0, false);
    int shift = 64 + __builtin_clzll(digits);
    uint128 dividend = (uint128)digits << shift;
    uint64_t divisor = WORD_POWERS[-exponent];
    uint128 quotient = dividend / divisor;
    return round_to_double(quotient, -shift, quotient * divisor != dividend);
}

/* By the C library, which rounds correctly, in its own locale: the point is a point. */
static bool parse_double(const number *from, double *value)
{
    char text[NUMBER_BYTES_MAX * 2];
    size_t length = (size_t)(from->stop - from->start);
    if (length >= sizeof(text))
        return false;
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (plain == (locale_t)0)
        return false;
    memcpy(text, from->start, length);
    text[length] = 0;
    char *stop;
    *value = strtod_l(text, &stop, plain);
    freelocale(plain);
    return stop == text + length && isnormal(*value); /* so it is neither subnormal nor infinite */
}

bool double_of(const number *from, double *value)
{
    int32_t exponent = from->exponent;
    bool word = from->count <= WORD_DIGITS;
    if (word && from->digits == 0) {
        if (exponent > EXPONENT_MAX || exponent < -EXPONENT_MAX)
            return false;
        *value = 0;
    } else if (FLT_EVAL_METHOD == 0 && word && from->digits >> DBL_MANT_DIG == 0 && exponent >= -EXACT_POWER_MAX &&
               exponent <= EXACT_POWER_MAX) {
        /* Both are exact, so there is one rounding (W. D. Clinger, How to read floating point numbers accurately). */
        double digits = (double)from->digits;
        *value = exponent < 0 ? digits / POWERS[-exponent] : digits * POWERS[exponent];
    } else if (word && exponent >= -WORD_DIGITS && exponent <= WORD_DIGITS)
        *value = scale_word(from->digits, exponent);
    else if (!parse_double(from, value))
        return false;
    if (from->negative && !(from->whole && *value == 0)) /* `-0` is whole: there is one zero among whole numbers */
        *value = -*value;
    return true;
}

uint128 power_of_ten(int32_t exponent)
{
    return exponent <= WORD_DIGITS ? (uint128)WORD_POWERS[exponent]
                                   : (uint128)WORD_POWERS[WORD_DIGITS] * WORD_POWERS[exponent - WORD_DIGITS];
}

/* All digits, of which there are at most 38. */
static uint128 long_digits(const number *from)
{
    uint128 digits = 0;
    for (const uint8_t *at = from->start; at < from->stop && (is_digit(*at) || *at == '.'); at++)
        if (*at != '.')
            digits = digits * 10 + (uint128)(*at - '0');
    return digits;
}

bool decimal_of(const number *from, int32_t precision, int32_t scale, int128 *units)
{
    if (from->count > DECIMAL_DIGITS_MAX || from->exponent > EXPONENT_MAX || from->exponent < -EXPONENT_MAX)
        return false;
    uint128 digits = from->count <= WORD_DIGITS ? (uint128)from->digits : long_digits(from);
    int32_t shift = from->exponent + scale;
    if (digits == 0)
        shift = 0;
    if (shift < -DECIMAL_DIGITS_MAX || shift > precision)
        return false;
    if (shift < 0) {
        uint128 divisor = power_of_ten(-shift), quotient = digits / divisor;
        if (quotient * divisor != digits)
            return false;
        digits = quotient;
    } else if (digits >= power_of_ten(precision - shift))
        return false;
    else
        digits *= power_of_ten(shift);
    if (digits >= power_of_ten(precision))
        return false;
    *units = from->negative ? -(int128)digits : (int128)digits;
    return true;
}
