/* See utf8.h. */
#include "utf8.h"

#include <string.h>

static bool continues(const uint8_t *at, int count)
{
    for (int i = 1; i <= count; i++)
        if ((at[i] & 0xc0) != 0x80)
            return false;
    return true;
}

/* The number of bytes of the character that begins here, 0 if it is not one (table 3-7 of the Unicode standard). */
static int character_bytes(const uint8_t *at, const uint8_t *end)
{
    int64_t there = end - at;
    if (at[0] < 0xc2)
        return 0;
    if (at[0] < 0xe0)
        return there >= 2 && continues(at, 1) ? 2 : 0;
    if (at[0] < 0xf0) {
        if (there < 3 || !continues(at, 2))
            return 0;
        bool overlong = at[0] == 0xe0 && at[1] < 0xa0, surrogate = at[0] == 0xed && at[1] > 0x9f;
        return overlong || surrogate ? 0 : 3;
    }
    if (at[0] > 0xf4 || there < 4 || !continues(at, 3))
        return 0;
    bool overlong = at[0] == 0xf0 && at[1] < 0x90, beyond = at[0] == 0xf4 && at[1] > 0x8f;
    return overlong || beyond ? 0 : 4;
}

const uint8_t *utf8_end(const uint8_t *at, const uint8_t *end)
{
    while (at < end && *at >= 0x80) {
        if (end - at >= 2 && at[0] >= 0xc2 && at[0] < 0xe0 && (at[1] & 0xc0) == 0x80) { /* most alphabets */
            at += 2;
            continue;
        }
        int bytes = character_bytes(at, end);
        if (bytes == 0)
            return NULL;
        at += bytes;
    }
    return at;
}

bool is_utf8(const uint8_t *at, const uint8_t *end)
{
    while (at != NULL && at < end) {
        while (end - at >= 8) {
            uint64_t word;
            memcpy(&word, at, 8);
            if ((word & 0x8080808080808080) != 0)
                break;
            at += 8;
        }
        while (at < end && *at < 0x80)
            at++;
        at = utf8_end(at, end);
    }
    return at != NULL;
}
