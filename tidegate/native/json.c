/* Records of JSON to columns: strict, and only what is certain. Any other record is left over, to msgspec.
 *
 * A record that is taken has exactly the values that msgspec makes of it (ADR 67). Values are read where they lie,
 * strings that somebody reads are copied; nothing of the records is kept.
 */
#include "arrow.h"
#include "json_numbers.h"
#include "json_text.h"

#include <float.h>
#include <stdio.h>

/* One number each with `_KINDS` in `json.py`. */
enum kind {
    BOOLEAN,
    TINYINT,
    SMALLINT,
    INT,
    BIGINT,
    FLOAT,
    DOUBLE,
    DECIMAL,
    STRING,
    BINARY,
    DATE,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    ARRAY,
    MAP, /* with texts as keys; its child is a struct of `key` and `value` */
    STRUCT,
};

/* What is declared: of the whole record, a struct. */
typedef struct field {
    const char *name; /* without quotes, backslashes and control characters */
    int32_t name_length;
    int32_t kind;
    int32_t wanted; /* whether anybody reads it; others are only checked */
    int32_t precision;
    int32_t scale;
    int32_t count;
    const struct field *children;
} field;

enum {
    SKIP_DEPTH_MAX = 64,
    STRANGERS_MAX = 64, /* names that no field has, remembered per struct */
    ENTRIES_MAX = 64,   /* of a map: each key is compared with each */
    SLOTS_PER_NAME = 2,
    TEXT_FIRST_BYTES = 4096,
    FORMAT_BYTES = 32,
};

typedef struct column column;

/* A name in records, and what followed it last: most records are alike, so most names are found by one comparison. */
typedef struct name {
    uint64_t head;        /* its first bytes, with the closing quote, in the order of memory */
    uint64_t mask;        /* of those bytes in a word */
    const uint8_t *bytes; /* with the closing quote; of a stranger in a record of this call */
    int32_t size;
    column *field; /* NULL: nobody declared it */
    struct name *next;
} name;

typedef struct {
    name start; /* no name: what follows it is the first of a record */
    name lost;  /* stands for strangers that are not remembered */
    name *names;
    int32_t count;
    int32_t strangers;
    int32_t *slots; /* 1 + place of a name, 0: none */
    uint32_t slot_mask;
} vocabulary;

typedef struct {
    arena *owner;
    bool strict; /* records with a name that nobody declared are left over */
    bool out_of_memory;
} run;

struct column {
    const field *type;
    run *run;
    int64_t length;
    int64_t capacity;
    uint8_t *known; /* NULL of a column that nobody reads; then `values` is, too */
    void *values;   /* of a list the offsets */
    texts texts;
    column *children;
    vocabulary words;
};

static const uint8_t *read_value(column *to, const uint8_t *at, const uint8_t *end);

/* ---- columns ---- */

static bool is_list(const column *this)
{
    return this->type->kind == ARRAY || this->type->kind == MAP;
}

static int64_t value_bytes(enum kind kind)
{
    switch (kind) {
    case TINYINT:
        return 1;
    case SMALLINT:
        return 2;
    case INT:
    case FLOAT:
    case DATE:
        return 4;
    case DECIMAL:
    case STRING:
    case BINARY:
        return 16;
    default:
        return 8;
    }
}

static int64_t values_bytes(const column *of, int64_t count)
{
    switch (of->type->kind) {
    case BOOLEAN:
        return bits_bytes(count);
    case STRUCT:
        return 0;
    default: /* a list has an offset more than values */
        return (count + 1) * value_bytes(of->type->kind);
    }
}

/* Room for twice as many; the former place stays in the arena, unused. */
static bool column_grow(column *to)
{
    int64_t capacity = to->capacity < 16 ? 32 : to->capacity * 2;
    uint8_t *known = bits_new(to->run->owner, capacity);
    void *values = arena_take(to->run->owner, values_bytes(to, capacity));
    if (known == NULL || values == NULL) {
        to->run->out_of_memory = true;
        return false;
    }
    memcpy(known, to->known, (size_t)bits_bytes(to->capacity));
    memcpy(values, to->values, (size_t)values_bytes(to, to->capacity));
    to->known = known;
    to->values = values;
    to->capacity = capacity;
    return true;
}

static inline bool column_room(column *to)
{
    return LIKELY(to->length < to->capacity) || column_grow(to);
}

static void put_zero(column *to)
{
    int64_t row = to->length, bytes;
    switch (to->type->kind) {
    case BOOLEAN:
        bit_clear(to->values, row);
        break;
    case ARRAY:
    case MAP:
        ((int64_t *)to->values)[row + 1] = ((int64_t *)to->values)[row];
        break;
    default:
        bytes = value_bytes(to->type->kind);
        memset((uint8_t *)to->values + row * bytes, 0, (size_t)bytes);
    }
}

static bool put_null(column *to)
{
    if (!column_room(to))
        return false;
    if (to->known != NULL) {
        bit_clear(to->known, to->length);
        if (to->type->kind != STRUCT)
            put_zero(to);
    }
    to->length++;
    for (int32_t i = 0; to->type->kind == STRUCT && i < to->type->count; i++)
        if (!put_null(to->children + i))
            return false;
    return true;
}

/* Takes rows back, down to `length`, and what a record that was left over has put into columns below. */
static void column_truncate(column *of, int64_t length)
{
    for (int64_t row = length; of->known != NULL && row < of->length; row++)
        bit_set(of->known, row);
    if (of->length > length)
        of->length = length;
    column *below = of->children;
    if (is_list(of))
        column_truncate(below, of->values == NULL ? below->length : ((int64_t *)of->values)[of->length]);
    for (int32_t i = 0; of->type->kind == STRUCT && i < of->type->count; i++)
        column_truncate(below + i, of->length);
}

/* ---- values ---- */

static const uint8_t *read_literal(const uint8_t *at, const uint8_t *end, const char *word, int32_t length)
{
    return end - at >= length && memcmp(at, word, (size_t)length) == 0 ? at + length : NULL;
}

static const uint8_t *read_boolean(column *to, const uint8_t *at, const uint8_t *end)
{
    bool value = *at == 't';
    at = value ? read_literal(at, end, "true", 4) : read_literal(at, end, "false", 5);
    if (at == NULL || !column_room(to))
        return NULL;
    if (to->values != NULL) {
        if (value)
            bit_set(to->values, to->length);
        else
            bit_clear(to->values, to->length);
    }
    to->length++;
    return at;
}

/* The cases are spelt out so that the compiler knows each width. */
static const uint8_t *read_whole(column *to, const uint8_t *at, const uint8_t *end)
{
    int64_t value;
    at = read_integer(at, end, &value);
    if (at == NULL || !column_room(to))
        return NULL;
    int64_t row = to->length;
    bool fits = true;
    switch (to->type->kind) {
    case TINYINT:
        fits = value == (int8_t)value;
        if (to->values != NULL)
            ((int8_t *)to->values)[row] = (int8_t)value;
        break;
    case SMALLINT:
        fits = value == (int16_t)value;
        if (to->values != NULL)
            ((int16_t *)to->values)[row] = (int16_t)value;
        break;
    case INT:
        fits = value == (int32_t)value;
        if (to->values != NULL)
            ((int32_t *)to->values)[row] = (int32_t)value;
        break;
    default:
        if (to->values != NULL)
            ((int64_t *)to->values)[row] = value;
    }
    to->length++;
    return fits ? at : NULL;
}

static const uint8_t *read_floating(column *to, const uint8_t *at, const uint8_t *end)
{
    number found;
    double value;
    at = read_number(at, end, &found);
    if (at == NULL || !double_of(&found, &value) || !column_room(to))
        return NULL;
    int64_t row = to->length++;
    if (to->type->kind == DOUBLE) {
        if (to->values != NULL)
            ((double *)to->values)[row] = value;
        return at;
    }
    if (value > FLT_MAX || value < -FLT_MAX)
        return NULL;
    if (to->values != NULL)
        ((float *)to->values)[row] = (float)value;
    return at;
}

/* The text between quotes, in `*from` and `*to`; escapes are left over: nobody needs one in what is read by this. */
static const uint8_t *read_plain(const uint8_t *at, const uint8_t *end, const uint8_t **from, const uint8_t **to)
{
    bool escaped;
    if (*at != '"')
        return NULL;
    *from = at + 1;
    *to = string_end(at + 1, end, false, &escaped);
    return *to == NULL || escaped ? NULL : *to + 1;
}

static const uint8_t *read_decimal(column *to, const uint8_t *at, const uint8_t *end)
{
    number found;
    int128 units;
    if (*at == '"') {
        const uint8_t *from, *stop;
        at = read_plain(at, end, &from, &stop);
        if (at == NULL || read_number_text(from, stop, &found) != stop)
            return NULL;
    } else
        at = read_number(at, end, &found);
    if (at == NULL || !decimal_of(&found, to->type->precision, to->type->scale, &units) || !column_room(to))
        return NULL;
    if (to->values != NULL)
        ((int128 *)to->values)[to->length] = units;
    to->length++;
    return at;
}

static const uint8_t *read_calendar(column *to, const uint8_t *at, const uint8_t *end)
{
    const uint8_t *from, *stop;
    at = read_plain(at, end, &from, &stop);
    if (at == NULL || !column_room(to))
        return NULL;
    int64_t row = to->length++;
    if (to->type->kind == DATE) {
        int32_t days;
        if (!read_date(from, stop, &days))
            return NULL;
        if (to->values != NULL)
            ((int32_t *)to->values)[row] = days;
        return at;
    }
    int64_t micros;
    if (!read_moment(from, stop, to->type->kind == TIMESTAMP, &micros))
        return NULL;
    if (to->values != NULL)
        ((int64_t *)to->values)[row] = micros;
    return at;
}

static bool texts_failed(column *of)
{
    of->run->out_of_memory = true;
    return false;
}

static bool put_unescaped(column *to, const uint8_t *from, const uint8_t *stop)
{
    if (!texts_reserve(&to->texts, stop - from))
        return texts_failed(to);
    texts_commit(&to->texts, (view *)to->values + to->length, unescape(to->texts.next, from, stop));
    return true;
}

static const uint8_t *read_string(column *to, const uint8_t *at, const uint8_t *end)
{
    bool escaped;
    if (*at != '"')
        return NULL;
    const uint8_t *from = at + 1, *stop = string_end(from, end, false, &escaped);
    if (stop == NULL || !column_room(to))
        return NULL;
    if (to->values != NULL) {
        view *place = (view *)to->values + to->length;
        if (UNLIKELY(escaped)) {
            if (!put_unescaped(to, from, stop))
                return NULL;
        } else if (!texts_copy(&to->texts, place, from, (int32_t)(stop - from), end)) {
            texts_failed(to);
            return NULL;
        }
    }
    to->length++;
    return stop + 1;
}

static const uint8_t *read_binary(column *to, const uint8_t *at, const uint8_t *end)
{
    const uint8_t *from, *stop;
    at = read_plain(at, end, &from, &stop);
    if (at == NULL || !column_room(to))
        return NULL;
    /* Also of a column that nobody reads: the check is the decoding. */
    if (!texts_reserve(&to->texts, stop - from)) {
        texts_failed(to);
        return NULL;
    }
    int32_t bytes = decode_base64(to->texts.next, from, stop);
    if (bytes < 0)
        return NULL;
    if (to->values != NULL)
        texts_commit(&to->texts, (view *)to->values + to->length, bytes);
    to->length++;
    return at;
}

/* ---- names ---- */

static inline uint64_t read_word(const uint8_t *at)
{
    uint64_t word;
    memcpy(&word, at, 8);
    return word;
}

/* Whether this name, with its quote, stands here. */
static inline bool name_is_here(const name *this, const uint8_t *at, const uint8_t *end)
{
    int32_t size = this->size;
    if (UNLIKELY(end - at < 8 || end - at < size))
        return end - at >= size && size > 0 && memcmp(at, this->bytes, (size_t)size) == 0;
    if (((read_word(at) ^ this->head) & this->mask) != 0 || size == 0)
        return false;
    if (size <= 8)
        return true;
    if (size <= 16)
        return read_word(at + size - 8) == read_word(this->bytes + size - 8);
    return memcmp(at + 8, this->bytes + 8, (size_t)size - 8) == 0;
}

static void name_set(name *this, const uint8_t *bytes, int32_t size, column *field)
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

static name *add_name(vocabulary *words, int32_t *slot, const uint8_t *bytes, int32_t size, column *field)
{
    name *made = words->names + words->count++;
    name_set(made, bytes, size, field);
    *slot = words->count;
    return made;
}

/* A name that was not foreseen. */
static name *look_up(vocabulary *words, const uint8_t *bytes, int32_t size)
{
    int32_t *slot = find_slot(words, bytes, size);
    if (*slot != 0)
        return words->names + *slot - 1;
    if (words->strangers == STRANGERS_MAX)
        return &words->lost;
    words->strangers++;
    return add_name(words, slot, bytes, size, NULL);
}

static bool begin_words(column *of)
{
    vocabulary *words = &of->words;
    int32_t count = of->type->count, most = count + STRANGERS_MAX;
    uint32_t slots = 64;
    while (slots < (uint32_t)most * SLOTS_PER_NAME)
        slots *= 2;
    words->names = arena_take(of->run->owner, most * (int64_t)sizeof(name));
    words->slots = arena_take(of->run->owner, slots * (int64_t)sizeof(int32_t));
    words->slot_mask = slots - 1;
    if (words->names == NULL || words->slots == NULL)
        return false;
    memset(words->slots, 0, slots * sizeof(int32_t));
    name *last = &words->start;
    for (int32_t i = 0; i < count; i++) {
        const field *child = of->type->children + i;
        uint8_t *bytes = arena_take(of->run->owner, child->name_length + 1);
        if (bytes == NULL)
            return false;
        memcpy(bytes, child->name, (size_t)child->name_length);
        bytes[child->name_length] = '"';
        int32_t *slot = find_slot(words, bytes, child->name_length + 1);
        last->next = add_name(words, slot, bytes, child->name_length + 1, of->children + i);
        last = last->next;
    }
    return true;
}

/* ---- what nobody declared ---- */

static const uint8_t *skip_string(const uint8_t *at, const uint8_t *end)
{
    bool escaped;
    if (at == end || *at != '"')
        return NULL;
    at = string_end(at + 1, end, true, &escaped);
    return at == NULL ? NULL : at + 1;
}

static const uint8_t *skip_colon(const uint8_t *at, const uint8_t *end)
{
    at = skip_space(at, end);
    return at < end && *at == ':' ? skip_space(at + 1, end) : NULL;
}

static const uint8_t *skip_digits(const uint8_t *at, const uint8_t *end)
{
    uint64_t digits = 0;
    const uint8_t *stop = read_digits(at, end, &digits);
    return stop == at ? NULL : stop;
}

/* Of any size, unlike what is read. */
static const uint8_t *skip_number(const uint8_t *at, const uint8_t *end)
{
    at += *at == '-';
    const uint8_t *start = at;
    at = skip_digits(at, end);
    if (at == NULL || (*start == '0' && at - start > 1))
        return NULL;
    if (at < end && *at == '.' && (at = skip_digits(at + 1, end)) == NULL)
        return NULL;
    if (at == end || (*at | 0x20) != 'e')
        return at;
    at++;
    at += at < end && (*at == '+' || *at == '-');
    return skip_digits(at, end);
}

static const uint8_t *skip_value(const uint8_t *at, const uint8_t *end, int32_t depth);

/* From after the bracket that opens an object or an array. */
static const uint8_t *skip_members(const uint8_t *at, const uint8_t *end, uint8_t closing, int32_t depth)
{
    at = skip_space(at, end);
    if (at < end && *at == closing)
        return at + 1;
    for (;;) {
        if (closing == '}') {
            at = skip_string(at, end);
            at = at == NULL ? NULL : skip_colon(at, end);
            if (at == NULL)
                return NULL;
        }
        at = skip_value(at, end, depth);
        if (at == NULL)
            return NULL;
        at = skip_space(at, end);
        if (at == end)
            return NULL;
        if (*at == closing)
            return at + 1;
        if (*at != ',')
            return NULL;
        at = skip_space(at + 1, end);
    }
}

static const uint8_t *skip_value(const uint8_t *at, const uint8_t *end, int32_t depth)
{
    if (at == end)
        return NULL;
    switch (*at) {
    case '"':
        return skip_string(at, end);
    case 'n':
        return read_literal(at, end, "null", 4);
    case 't':
        return read_literal(at, end, "true", 4);
    case 'f':
        return read_literal(at, end, "false", 5);
    case '{':
    case '[':
        return depth == SKIP_DEPTH_MAX ? NULL : skip_members(at + 1, end, *at == '{' ? '}' : ']', depth + 1);
    default:
        return skip_number(at, end);
    }
}

/* ---- objects and arrays ---- */

/* The name that begins here, after a quote; moves `*at` past the closing one. One with escapes is left over. */
static name *find_name(vocabulary *words, const uint8_t **at, const uint8_t *end)
{
    bool escaped;
    const uint8_t *begin = *at, *quote = string_end(begin, end, true, &escaped);
    if (quote == NULL || escaped)
        return NULL;
    *at = quote + 1;
    return look_up(words, begin, (int32_t)(quote + 1 - begin));
}

/* The value of a member. A repeated name is left over: of msgspec's the last one counts. */
static const uint8_t *read_member(column *object, column *to, const uint8_t *at, const uint8_t *end)
{
    if (to == NULL)
        return object->run->strict ? NULL : skip_value(at, end, 0);
    if (UNLIKELY(to->length != object->length))
        return NULL;
    return read_value(to, at, end);
}

static bool put_missing(column *object)
{
    for (int32_t i = 0; i < object->type->count; i++)
        if (object->children[i].length == object->length && !put_null(object->children + i))
            return false;
    return true;
}

/* From after the opening bracket. Each child has grown by one afterwards. */
static const uint8_t *read_members(column *object, const uint8_t *at, const uint8_t *end)
{
    name *before = &object->words.start;
    int32_t seen = 0;
    at = skip_space(at, end);
    bool empty = at < end && *at == '}';
    for (; !empty; at = skip_space(at + 1, end)) {
        if (UNLIKELY(at == end || *at != '"'))
            return NULL;
        at++;
        name *here = before->next;
        if (LIKELY(here != NULL && name_is_here(here, at, end)))
            at += here->size;
        else {
            here = find_name(&object->words, &at, end);
            if (here == NULL)
                return NULL;
            before->next = here;
        }
        if (LIKELY(at < end && *at == ':'))
            at = skip_space(at + 1, end);
        else if ((at = skip_colon(at, end)) == NULL)
            return NULL;
        seen += here->field != NULL;
        if (at == end || (at = read_member(object, here->field, at, end)) == NULL)
            return NULL;
        at = skip_space(at, end);
        if (UNLIKELY(at == end))
            return NULL;
        if (*at == '}')
            break;
        if (*at != ',')
            return NULL;
        before = here;
    }
    return seen == object->type->count || put_missing(object) ? at + 1 : NULL;
}

static const uint8_t *read_struct(column *to, const uint8_t *at, const uint8_t *end)
{
    if (*at != '{' || !column_room(to))
        return NULL;
    at = read_members(to, at + 1, end);
    to->length++;
    return at;
}

static const uint8_t *read_array(column *to, const uint8_t *at, const uint8_t *end)
{
    if (*at != '[' || !column_room(to))
        return NULL;
    at = skip_space(at + 1, end);
    bool empty = at < end && *at == ']';
    for (; !empty; at = skip_space(at + 1, end)) {
        if (at == end || (at = read_value(to->children, at, end)) == NULL)
            return NULL;
        at = skip_space(at, end);
        if (at == end)
            return NULL;
        if (*at == ']')
            break;
        if (*at != ',')
            return NULL;
    }
    to->length++;
    if (to->values != NULL)
        ((int64_t *)to->values)[to->length] = to->children->length;
    return at + 1;
}

static bool is_same_text(const column *of, int64_t one, int64_t other)
{
    const view *a = (const view *)of->values + one, *b = (const view *)of->values + other;
    if (a->length != b->length || memcmp(a->bytes, b->bytes, 4) != 0) /* the first bytes are in every view */
        return false;
    if (a->length <= VIEW_INLINE_BYTES)
        return memcmp(a->bytes, b->bytes, VIEW_INLINE_BYTES) == 0;
    return memcmp(texts_of(&of->texts, a), texts_of(&of->texts, b), (size_t)a->length) == 0;
}

/* Whether each key from `first` on is there once. Nobody asks that of a map that is not read. */
static bool keys_differ(const column *keys, int64_t first)
{
    if (keys->values == NULL)
        return true;
    if (keys->length - first > ENTRIES_MAX)
        return false;
    for (int64_t i = first; i < keys->length; i++)
        for (int64_t j = first; j < i; j++)
            if (is_same_text(keys, i, j))
                return false;
    return true;
}

static const uint8_t *read_entry(column *entries, const uint8_t *at, const uint8_t *end)
{
    column *keys = entries->children, *values = keys + 1;
    if (at == end || !column_room(entries) || (at = read_string(keys, at, end)) == NULL)
        return NULL;
    at = skip_colon(at, end);
    at = at == NULL || at == end ? NULL : read_value(values, at, end);
    entries->length++;
    return at;
}

/* A repeated key is left over: its last value counts, in the first place. */
static const uint8_t *read_map(column *to, const uint8_t *at, const uint8_t *end)
{
    if (*at != '{' || !column_room(to))
        return NULL;
    column *entries = to->children;
    int64_t first = entries->length;
    at = skip_space(at + 1, end);
    bool empty = at < end && *at == '}';
    for (; !empty; at = skip_space(at + 1, end)) {
        at = read_entry(entries, at, end);
        at = at == NULL ? NULL : skip_space(at, end);
        if (at == NULL || at == end)
            return NULL;
        if (*at == '}')
            break;
        if (*at != ',')
            return NULL;
    }
    to->length++;
    if (to->values != NULL)
        ((int64_t *)to->values)[to->length] = entries->length;
    return keys_differ(entries->children, first) ? at + 1 : NULL;
}

/* `at` is before the end. */
static const uint8_t *read_value(column *to, const uint8_t *at, const uint8_t *end)
{
    if (UNLIKELY(*at == 'n')) {
        at = read_literal(at, end, "null", 4);
        return at != NULL && put_null(to) ? at : NULL;
    }
    switch (to->type->kind) {
    case BOOLEAN:
        return read_boolean(to, at, end);
    case TINYINT:
    case SMALLINT:
    case INT:
    case BIGINT:
        return read_whole(to, at, end);
    case FLOAT:
    case DOUBLE:
        return read_floating(to, at, end);
    case DECIMAL:
        return read_decimal(to, at, end);
    case STRING:
        return read_string(to, at, end);
    case BINARY:
        return read_binary(to, at, end);
    case DATE:
    case TIMESTAMP:
    case TIMESTAMP_NTZ:
        return read_calendar(to, at, end);
    case ARRAY:
        return read_array(to, at, end);
    case MAP:
        return read_map(to, at, end);
    case STRUCT:
        return read_struct(to, at, end);
    default:
        return NULL;
    }
}

/* ---- a batch ---- */

static bool begin_column(column *this, const field *type, run *of, bool wanted, int64_t rows)
{
    *this = (column){.type = type, .run = of, .capacity = wanted ? rows : INT64_MAX};
    texts_begin(&this->texts, of->owner, TEXT_FIRST_BYTES, TEXT_BYTES_MAX);
    if (wanted) {
        this->known = bits_new(of->owner, rows);
        this->values = arena_take(of->owner, values_bytes(this, rows));
        if (this->known == NULL || this->values == NULL)
            return false;
        if (is_list(this))
            *(int64_t *)this->values = 0;
    }
    if (type->count == 0)
        return true;
    this->children = arena_take(of->owner, type->count * (int64_t)sizeof(column));
    if (this->children == NULL)
        return false;
    for (int32_t i = 0; i < type->count; i++)
        if (!begin_column(this->children + i, type->children + i, of, wanted, is_list(this) ? 0 : rows))
            return false;
    return type->kind != STRUCT || begin_words(this);
}

/* The record itself is no column: which of its fields are, each says. */
static bool begin_record(column *record, const field *type, run *of, int64_t rows)
{
    *record = (column){.type = type, .run = of, .capacity = INT64_MAX};
    record->children = arena_take(of->owner, type->count * (int64_t)sizeof(column));
    if (record->children == NULL)
        return false;
    for (int32_t i = 0; i < type->count; i++) {
        const field *child = type->children + i;
        if (!begin_column(record->children + i, child, of, child->wanted, rows))
            return false;
    }
    return begin_words(record);
}

static bool read_record(column *record, const uint8_t *at, const uint8_t *end)
{
    at = skip_space(at, end);
    if (at == end || *at != '{')
        return false;
    at = read_members(record, at + 1, end);
    if (at == NULL || skip_space(at, end) != end)
        return false;
    record->length++;
    return true;
}

static bool read_records(column *record, const uint8_t *const *values, const int32_t *lengths, int64_t count,
                         int64_t *left, int64_t *left_count)
{
    *left_count = 0;
    for (int64_t i = 0; i < count; i++)
        if (lengths[i] <= 0 || !read_record(record, values[i], values[i] + lengths[i])) {
            if (record->run->out_of_memory)
                return false;
            column_truncate(record, record->length);
            left[(*left_count)++] = i;
        }
    return true;
}

/* ---- to Arrow ---- */

static const char *format_of(const field *type, char *text)
{
    static const char *const formats[] = {[BOOLEAN] = "b",       [TINYINT] = "c",        [SMALLINT] = "s",
                                          [INT] = "i",           [BIGINT] = "l",         [FLOAT] = "f",
                                          [DOUBLE] = "g",        [STRING] = "vu",        [BINARY] = "vz",
                                          [DATE] = "tdD",        [TIMESTAMP] = "tsu:UTC", [TIMESTAMP_NTZ] = "tsu:",
                                          [ARRAY] = "+L",        [MAP] = "+L",          [STRUCT] = "+s"};
    if (type->kind != DECIMAL)
        return formats[type->kind];
    snprintf(text, FORMAT_BYTES, "d:%d,%d", (int)type->precision, (int)type->scale);
    return text;
}

static bool export_column(column *from, struct ArrowArray *array, struct ArrowSchema *schema);

/* The children that are read, of a struct or a list, and then itself. */
static bool export_parent(column *from, bool all, int64_t missing, struct ArrowArray *array, struct ArrowSchema *schema)
{
    const field *type = from->type;
    arena *owner = from->run->owner;
    struct ArrowArray *arrays = arena_take(owner, type->count * (int64_t)sizeof(struct ArrowArray));
    struct ArrowSchema *schemas = arena_take(owner, type->count * (int64_t)sizeof(struct ArrowSchema));
    if (arrays == NULL || schemas == NULL)
        return false;
    int64_t count = 0;
    for (int32_t i = 0; i < type->count; i++)
        if (all || type->children[i].wanted) {
            if (!export_column(from->children + i, arrays + count, schemas + count))
                return false;
            count++;
        }
    char text[FORMAT_BYTES];
    const int64_t *offsets = is_list(from) ? from->values : NULL;
    return arrow_parent(array, owner, from->length, from->known, missing, offsets, arrays, count) &&
           arrow_schema(schema, owner, format_of(type, text), type->name, schemas, count);
}

static bool export_column(column *from, struct ArrowArray *array, struct ArrowSchema *schema)
{
    const field *type = from->type;
    arena *owner = from->run->owner;
    int64_t missing = bits_count_zeros(from->known, from->length);
    char text[FORMAT_BYTES];
    bool done;
    switch (type->kind) {
    case ARRAY:
    case MAP:
    case STRUCT:
        return export_parent(from, true, missing, array, schema);
    case STRING:
    case BINARY:
        done = arrow_views(array, owner, from->length, from->known, missing, from->values, &from->texts);
        break;
    default:
        done = arrow_values(array, owner, from->length, from->known, missing, from->values);
    }
    return done && arrow_schema(schema, owner, format_of(type, text), type->name, NULL, 0);
}

/* About what the columns take, without strings. */
static int64_t expected_bytes(const field *record, int64_t rows)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < record->count; i++)
        if (record->children[i].wanted)
            bytes += rows * value_bytes(record->children[i].kind) + bits_bytes(rows);
    return bytes + record->count * (int64_t)(sizeof(column) + 4 * sizeof(name)) + (1 << 14);
}

/* Decodes the records that it is certain of into the rows of a struct, in order, with the fields that are wanted;
 * the places of all others are in `left`, which has room for `count`. Returns 0 where memory is missing.
 */
int32_t tg_json_decode(const field *record, int32_t strict, const uint8_t *const *values, const int32_t *lengths,
                       int64_t count, int64_t *left, int64_t *left_count, struct ArrowArray *array,
                       struct ArrowSchema *schema)
{
    run of = {arena_new(expected_bytes(record, count)), strict != 0, false};
    if (of.owner == NULL)
        return 0;
    column rows;
    bool done = begin_record(&rows, record, &of, count) &&
                read_records(&rows, values, lengths, count, left, left_count) &&
                export_parent(&rows, false, 0, array, schema);
    return arrow_finish(of.owner, done, array, schema);
}
