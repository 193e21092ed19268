/* Schubfach (Raffaello Giulietti, "The Schubfach way to render doubles"): the interval of decimals that are rounded to a
 * double holds one or two multiples of a power of ten that is chosen by its exponent, or one of the next power.
 *
 * Powers of ten are rounded up to 128 bits. They are computed once: as text they would be 600 lines.
 */
#include "shortest.h"

#include <stdbool.h>
#include <string.h>

__extension__ typedef unsigned __int128 uint128;

enum {
    SIGNIFICAND_BITS = 52,
    EXPONENT_BIAS = 1075,
    POWER_MIN = -292,
    POWER_MAX = 324,
    WORDS = 40, /* 10^324 has 34 of them; 2^1279 / 10^292 has 10 */
};

static uint128 powers[POWER_MAX - POWER_MIN + 1];

/* The first 128 bits of a number of `WORDS` words, the lowest first. `*rest`: others are not zero. */
static uint128 first_bits(const uint32_t *words, bool *rest)
{
    int top = WORDS - 1;
    while (words[top] == 0)
        top--;
    uint128 bits = 0;
    int next = top;
    for (int taken = 0; taken < 4; taken++, next--)
        bits = bits << 32 | (next >= 0 ? words[next] : 0);
    int shift = __builtin_clz(words[top]);
    uint32_t after = next >= 0 ? words[next] : 0;
    if (shift > 0)
        bits = bits << shift | after >> (32 - shift);
    *rest = (uint32_t)(after << shift) != 0;
    while (--next >= 0)
        *rest |= words[next] != 0;
    return bits;
}

static void multiply_by_ten(uint32_t *words)
{
    uint64_t carry = 0;
    for (int i = 0; i < WORDS; i++) {
        carry += (uint64_t)words[i] * 10;
        words[i] = (uint32_t)carry;
        carry >>= 32;
    }
}

static void divide_by_ten(uint32_t *words)
{
    uint64_t left = 0;
    for (int i = WORDS - 1; i >= 0; i--) {
        left = left << 32 | words[i];
        words[i] = (uint32_t)(left / 10);
        left %= 10;
    }
}

/* To be called once, before a double is written. */
void tg_prepare_doubles(void)
{
    bool rest;
    uint32_t words[WORDS] = {1};
    for (int power = 0; power <= POWER_MAX; power++) {
        uint128 bits = first_bits(words, &rest);
        powers[power - POWER_MIN] = bits + rest;
        multiply_by_ten(words);
    }
    memset(words, 0, sizeof words);
    words[WORDS - 1] = (uint32_t)1 << 31;
    for (int power = -1; power >= POWER_MIN; power--) {
        divide_by_ten(words);
        powers[power - POWER_MIN] = first_bits(words, &rest) + 1;
    }
}

static int32_t floor_log2_of_power(int32_t power)
{
    return (power * 1741647) >> 19;
}

/* The product without its last 128 bits, whose last bit says whether anything was left out. */
static uint64_t round_to_odd(uint128 power, uint64_t by)
{
    uint128 low = (uint128)(uint64_t)power * by, high = (uint128)(uint64_t)(power >> 64) * by;
    high += low >> 64;
    return (uint64_t)(high >> 64) | ((uint64_t)high > 1);
}

static decimal without_zeros(uint64_t digits, int32_t exponent)
{
    while (digits % 10 == 0) {
        digits /= 10;
        exponent++;
    }
    return (decimal){digits, exponent};
}

static decimal in_interval(uint64_t significand, int32_t exponent, bool closer_below)
{
    bool odd = significand & 1;
    uint64_t middle = significand * 4;
    int32_t power = (exponent * 1262611 - (closer_below ? 524031 : 0)) >> 22;
    int32_t shift = exponent + floor_log2_of_power(-power) + 1;
    uint128 scale = powers[-power - POWER_MIN];
    uint64_t lower = round_to_odd(scale, (middle - 2 + closer_below) << shift) + odd;
    uint64_t value = round_to_odd(scale, middle << shift);
    uint64_t upper = round_to_odd(scale, (middle + 2) << shift) - odd;
    uint64_t digits = value / 4;
    if (digits >= 10) {
        uint64_t fewer = digits / 10;
        bool below = lower <= 40 * fewer, above = 40 * fewer + 40 <= upper;
        if (below != above)
            return without_zeros(fewer + above, power + 1);
    }
    bool below = lower <= 4 * digits, above = 4 * digits + 4 <= upper;
    if (below != above)
        return without_zeros(digits + above, power);
    uint64_t half = 4 * digits + 2;
    return without_zeros(digits + (value > half || (value == half && (digits & 1))), power);
}

decimal shortest_decimal(uint64_t bits)
{
    uint64_t significand = bits & (((uint64_t)1 << SIGNIFICAND_BITS) - 1);
    int32_t exponent = (int32_t)(bits >> SIGNIFICAND_BITS & 0x7ff);
    bool closer_below = significand == 0 && exponent > 1;
    if (exponent == 0)
        return in_interval(significand, 1 - EXPONENT_BIAS, false);
    significand |= (uint64_t)1 << SIGNIFICAND_BITS;
    exponent -= EXPONENT_BIAS;
    if (exponent <= 0 && exponent >= -SIGNIFICAND_BITS && (significand & (((uint64_t)1 << -exponent) - 1)) == 0)
        return without_zeros(significand >> -exponent, 0);
    return in_interval(significand, exponent, closer_below);
}
