/* Whole numbers as Avro and Kafka write them: seven bits a byte, the lowest first, the highest bit in all but the last
 * byte, and the sign in the lowest bit. */
#ifndef TIDEGATE_LONG_H
#define TIDEGATE_LONG_H

#include <stddef.h>
#include <stdint.h>

enum { LONG_BYTES = 10 };

static inline int64_t signed_of(uint64_t number)
{
    return (int64_t)(number >> 1) ^ -(int64_t)(number & 1);
}

/* After the number that begins here; NULL where the bytes end in it, or it has more than 64 bits. */
static inline const uint8_t *read_long(const uint8_t *at, const uint8_t *end, int64_t *value)
{
    uint64_t found = 0;
    for (int shift = 0; at < end && shift < 7 * LONG_BYTES; shift += 7) {
        uint8_t byte = *at++;
        found |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *value = signed_of(found);
            return shift == 7 * (LONG_BYTES - 1) && byte > 1 ? NULL : at;
        }
    }
    return NULL;
}

#endif
