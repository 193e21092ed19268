/* See json_names.h. */
#include "json_names.h"

enum {
    UNAUTHENTICATED_MAX = 64, /* and names with escapes, that are remembered per struct */
    SLOTS_MIN = 64,
    SLOTS_PER_NAME = 2,
    ESCAPED_BYTES_MAX = 256,
};

static void name_set(name *this, const uint8_t *bytes, int32_t size, int32_t field)
{
    uint8_t head[8] = {0}, mask[8] = {0};
    size_t here = size < 8 ? (size_t)size : 8;
    memcpy(head, bytes, here);
    memset(mask, 0xff, here);
    *this = (name){.head = read_word(head), .mask = read_word(mask), .bytes = bytes, .size = size, .field = field};
}

/* Of some bytes of a name, and its size: equal names have equal ones. */
static uint32_t name_hash(const uint8_t *bytes, int32_t size)
{
    uint64_t sum = (uint64_t)size;
    for (int32_t i = 0; i < size; i++)
        sum = (sum ^ bytes[i]) * 0x100000001b3;
    return (uint32_t)(sum ^ sum >> 32);
}

/* The slot of a name, or the empty one where it belongs. */
static int32_t *find_slot(vocabulary *words, const uint8_t *bytes, int32_t size)
{
    uint32_t slot = name_hash(bytes, size) & words->slot_mask;
    for (;; slot = (slot + 1) & words->slot_mask) {
        int32_t *found = words->slots + slot;
        if (*found == 0)
            return found;
        const name *there = words->names + *found - 1;
        if (there->size == size && memcmp(there->bytes, bytes, (size_t)size) == 0)
            return found;
    }
}

static name *add_name(vocabulary *words, int32_t *slot, const uint8_t *bytes, int32_t size, int32_t field)
{
    name *made = words->names + words->count++;
    name_set(made, bytes, size, field);
    *slot = words->count;
    return made;
}

name *names_find(vocabulary *words, const uint8_t *bytes, int32_t size)
{
    int32_t *slot = find_slot(words, bytes, size);
    if (*slot != 0)
        return words->names + *slot - 1;
    if (words->strangers == UNAUTHENTICATED_MAX)
        return &words->lost;
    words->strangers++;
    return add_name(words, slot, bytes, size, STRANGER);
}

/* The field that a name with escapes means; STRANGER without one. No field has a quote or a backslash in its name, and
 * to look such a name up would find another one with escapes.
 */
static int32_t find_meant(vocabulary *words, const uint8_t *bytes, int32_t size)
{
    uint8_t text[ESCAPED_BYTES_MAX];
    int32_t length = unescape(text, bytes, bytes + size - 1);
    if (memchr(text, '"', (size_t)length) != NULL || memchr(text, '\\', (size_t)length) != NULL)
        return STRANGER;
    text[length] = '"';
    int32_t *slot = find_slot(words, text, length + 1);
    return *slot == 0 ? STRANGER : words->names[*slot - 1].field;
}

name *names_find_escaped(vocabulary *words, const uint8_t *bytes, int32_t size)
{
    int32_t *slot = find_slot(words, bytes, size);
    if (*slot != 0)
        return words->names + *slot - 1;
    if (size > ESCAPED_BYTES_MAX)
        return NULL;
    int32_t field = find_meant(words, bytes, size);
    if (words->strangers == UNAUTHENTICATED_MAX)
        return field == STRANGER ? &words->lost : words->names + field;
    words->strangers++;
    return add_name(words, slot, bytes, size, field);
}

bool names_begin(vocabulary *words, arena *scratch, int32_t fields)
{
    int32_t most = fields + UNAUTHENTICATED_MAX;
    uint32_t slots = SLOTS_MIN;
    while (slots < (uint32_t)most * SLOTS_PER_NAME)
        slots *= 2;
    *words = (vocabulary){.lost = {.field = STRANGER}, .slot_mask = slots - 1};
    words->names = arena_take(scratch, most * (int64_t)sizeof(name));
    words->slots = arena_take(scratch, slots * (int64_t)sizeof(int32_t));
    if (words->names == NULL || words->slots == NULL)
        return false;
    memset(words->slots, 0, slots * sizeof(int32_t));
    return true;
}

void names_add_bytes(vocabulary *words, const uint8_t *bytes, int32_t size)
{
    name *last = words->count == 0 ? &words->start : words->names + words->count - 1;
    last->next = add_name(words, find_slot(words, bytes, size), bytes, size, words->count);
}

bool names_add(vocabulary *words, arena *scratch, const char *bytes, int32_t length)
{
    uint8_t *copy = arena_take(scratch, length + 1);
    if (copy == NULL)
        return false;
    memcpy(copy, bytes, (size_t)length);
    copy[length] = '"';
    names_add_bytes(words, copy, length + 1);
    return true;
}
