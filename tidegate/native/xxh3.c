/* XXH3 with 64 bits, by its specification (github.com/Cyan4973/xxHash, doc/xxhash_spec.md). Numbers are little-endian, as
 * on all machines that Polars runs on. */
#include "xxh3.h"

#include <string.h>

__extension__ typedef unsigned __int128 uint128;

#define PRIME32_1 0x9e3779b1u
#define PRIME32_2 0x85ebca77u
#define PRIME32_3 0xc2b2ae3du
#define PRIME64_1 0x9e3779b185ebca87u
#define PRIME64_2 0xc2b2ae3d27d4eb4fu
#define PRIME64_3 0x165667b19e3779f9u
#define PRIME64_4 0x85ebca77c2b2ae63u
#define PRIME64_5 0x27d4eb2f165667c5u
#define PRIME_MX1 0x165667919e3779f9u
#define PRIME_MX2 0x9fb21c651e98df25u

enum {
    SECRET_BYTES = 192,
    STRIPE_BYTES = 64,
    STRIPES = (SECRET_BYTES - STRIPE_BYTES) / 8, /* of a block */
    SHORT_MAX = 240,
};

static const uint8_t secret[SECRET_BYTES] = {
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c, 0xde, 0xd4, 0x6d, 0xe9,
    0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f, 0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78,
    0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21, 0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6,
    0x81, 0x3a, 0x26, 0x4c, 0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8, 0xa8, 0xfa, 0x76, 0x3f,
    0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d, 0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31,
    0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64, 0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff,
    0xfa, 0x13, 0x63, 0xeb, 0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
    0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce, 0x45, 0xcb, 0x3a, 0x8f,
    0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
};

static inline uint64_t read_64(const uint8_t *from)
{
    uint64_t value;
    memcpy(&value, from, sizeof(value));
    return value;
}

static inline uint32_t read_32(const uint8_t *from)
{
    uint32_t value;
    memcpy(&value, from, sizeof(value));
    return value;
}

static inline uint64_t rotate(uint64_t value, int bits)
{
    return value << bits | value >> (64 - bits);
}

static inline uint64_t fold(uint64_t left, uint64_t right)
{
    uint128 product = (uint128)left * right;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint64_t avalanche(uint64_t hash)
{
    hash = (hash ^ hash >> 37) * PRIME_MX1;
    return hash ^ hash >> 32;
}

static inline uint64_t avalanche_of_xxh64(uint64_t hash)
{
    hash = (hash ^ hash >> 33) * PRIME64_2;
    hash = (hash ^ hash >> 29) * PRIME64_3;
    return hash ^ hash >> 32;
}

/* Up to 16 bytes. */
static uint64_t hash_few(const uint8_t *bytes, size_t length)
{
    if (length > 8) {
        uint64_t low = read_64(bytes) ^ read_64(secret + 24) ^ read_64(secret + 32);
        uint64_t high = read_64(bytes + length - 8) ^ read_64(secret + 40) ^ read_64(secret + 48);
        return avalanche(length + __builtin_bswap64(low) + high + fold(low, high));
    }
    if (length >= 4) {
        uint64_t both = read_32(bytes + length - 4) + ((uint64_t)read_32(bytes) << 32);
        uint64_t hash = both ^ read_64(secret + 8) ^ read_64(secret + 16);
        hash = (hash ^ rotate(hash, 49) ^ rotate(hash, 24)) * PRIME_MX2;
        hash = (hash ^ ((hash >> 35) + length)) * PRIME_MX2;
        return hash ^ hash >> 28;
    }
    if (length > 0) {
        uint32_t all = (uint32_t)bytes[0] << 16 | (uint32_t)bytes[length >> 1] << 24 | bytes[length - 1] |
                       (uint32_t)length << 8;
        return avalanche_of_xxh64(all ^ (uint64_t)(read_32(secret) ^ read_32(secret + 4)));
    }
    return avalanche_of_xxh64(read_64(secret + 56) ^ read_64(secret + 64));
}

static inline uint64_t mix_16(const uint8_t *bytes, const uint8_t *with)
{
    return fold(read_64(bytes) ^ read_64(with), read_64(bytes + 8) ^ read_64(with + 8));
}

/* 17 to 240 bytes. */
static uint64_t hash_short(const uint8_t *bytes, size_t length)
{
    uint64_t sum = length * PRIME64_1;
    if (length <= 128) {
        for (size_t at = (length - 1) / 32 + 1; at-- > 0;)
            sum += mix_16(bytes + 16 * at, secret + 32 * at) +
                   mix_16(bytes + length - 16 * (at + 1), secret + 32 * at + 16);
        return avalanche(sum);
    }
    for (size_t at = 0; at < 8; at++)
        sum += mix_16(bytes + 16 * at, secret + 16 * at);
    sum = avalanche(sum);
    for (size_t at = 8; at < length / 16; at++)
        sum += mix_16(bytes + 16 * at, secret + 16 * (at - 8) + 3);
    return avalanche(sum + mix_16(bytes + length - 16, secret + 136 - 17));
}

static inline void add_stripe(uint64_t sums[8], const uint8_t *bytes, const uint8_t *with)
{
    for (int at = 0; at < 8; at++) {
        uint64_t value = read_64(bytes + 8 * at), key = value ^ read_64(with + 8 * at);
        sums[at ^ 1] += value;
        sums[at] += (key & 0xffffffffu) * (key >> 32);
    }
}

static uint64_t hash_long(const uint8_t *bytes, size_t length)
{
    uint64_t sums[8] = {PRIME32_3, PRIME64_1, PRIME64_2, PRIME64_3, PRIME64_4, PRIME32_2, PRIME64_5, PRIME32_1};
    size_t stripes = (length - 1) / STRIPE_BYTES;
    for (size_t at = 0; at < stripes; at++) {
        add_stripe(sums, bytes + at * STRIPE_BYTES, secret + at % STRIPES * 8);
        if (at % STRIPES == STRIPES - 1)
            for (int sum = 0; sum < 8; sum++) {
                uint64_t mixed = sums[sum] ^ sums[sum] >> 47 ^ read_64(secret + SECRET_BYTES - STRIPE_BYTES + 8 * sum);
                sums[sum] = mixed * PRIME32_1;
            }
    }
    add_stripe(sums, bytes + length - STRIPE_BYTES, secret + SECRET_BYTES - STRIPE_BYTES - 7);
    uint64_t hash = length * PRIME64_1;
    for (int at = 0; at < 4; at++) {
        const uint8_t *with = secret + 11 + 16 * at;
        hash += fold(sums[2 * at] ^ read_64(with), sums[2 * at + 1] ^ read_64(with + 8));
    }
    return avalanche(hash);
}

uint64_t xxh3_64(const uint8_t *bytes, size_t length)
{
    if (length <= 16)
        return hash_few(bytes, length);
    return length <= SHORT_MAX ? hash_short(bytes, length) : hash_long(bytes, length);
}
