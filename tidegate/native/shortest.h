/* The shortest decimal to which a double is the nearest. */
#ifndef TIDEGATE_SHORTEST_H
#define TIDEGATE_SHORTEST_H

#include <stdint.h>

#pragma GCC visibility push(hidden)

/* `digits` times ten to the power of `exponent`. */
typedef struct {
    uint64_t digits;
    int32_t exponent;
} decimal;

/* Of a finite double above zero, given by its bits. Without zeros at the end. */
decimal shortest_decimal(uint64_t bits);

#pragma GCC visibility pop

#endif
