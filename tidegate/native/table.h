/* Keyed state in columns (`state/columns.py`): a hash table from the bytes of keys to rows, and the rows in chunks.
 *
 * The bytes of a key are its MessagePack array, as it is in a state file. A chunk has the fields of ROWS rows and a heap
 * with their keys and texts. It does not change while it has a second holder: the table copies it first. So a moment of
 * a table is a list of chunks, and may be read by another thread while one thread changes the table.
 *
 * Functions return NULL or false if memory is missing. A table is not used any more after that.
 */
#ifndef TIDEGATE_TABLE_H
#define TIDEGATE_TABLE_H

#include "columns.h"
#include "key_set.h"
#include "lent.h"

#pragma GCC visibility push(hidden)

enum { ROWS = 64, SEGMENTS = 256, FIELDS_MAX = 128, ABSENT = -1 };

/* Bytes in the heap of a chunk. */
typedef struct {
    uint32_t offset;
    uint32_t length;
} span;

/* A key column or a field of the value. */
typedef struct {
    int32_t kind;
    bool nullable;
    int32_t width; /* of a value in a chunk; a boolean has a byte, a text has a span */
    int64_t known; /* where a chunk has the bitmap of values that are not NULL */
    int64_t values;
} part;

typedef struct {
    int32_t groups; /* number of key groups */
    int32_t key_count;
    int32_t value_count;
    int64_t chunk_bytes;
    part keys[FIELDS_MAX];
    part values[FIELDS_MAX];
} layout;

typedef struct {
    int64_t holders;
    uint8_t *heap;
    int64_t size;
    int64_t used;
    int64_t unused; /* bytes before `used` that are no longer referenced */
    uint8_t live[ROWS / 8];
    uint16_t groups[ROWS];
    span keys[ROWS];
    uint64_t columns[]; /* aligned for all types */
} chunk;

/* Open addressing. A slot is 0, or the lower half of a hash and one more than the number of a row. */
typedef struct {
    uint64_t *slots;
    uint32_t mask;
    uint32_t used;
} segment;

typedef struct {
    const layout *of;
    uint64_t seed;
    int64_t count; /* of keys */
    int64_t version; /* changes when a key comes or goes */
    chunk **chunks;
    int64_t chunk_count;
    int64_t chunk_capacity;
    int64_t next_row; /* the first that was never used; the last chunk may have it */
    uint32_t *free_rows;
    int64_t free_count;
    int64_t free_capacity;
    segment segments[SEGMENTS]; /* by the uppermost bits of a hash, so that none is large and grows for long */
} table;

/* The keys of a batch, numbered, and the row of each or ABSENT. */
typedef struct {
    key_set keys;
    int64_t *rows;
    uint16_t *groups; /* of keys that were removed */
    uint32_t *numbers;
    uint32_t *first_rows;
    int64_t version; /* of the table */
} batch;

/* The rows that have changed in an interval, and the keys that were removed in it. */
typedef struct {
    uint32_t *rows;
    int64_t count;
    int64_t capacity;
    uint8_t *marks; /* which rows are in the list, while it grows */
    int64_t marked; /* how many rows have a mark or none */
    key_set removed;
    uint16_t *groups; /* of keys that were removed */
    int64_t groups_capacity;
} changes;

/* Chunks as they were at a moment; NULL for those that were not asked for. */
typedef struct {
    const layout *of;
    chunk **chunks;
    int64_t count;
} moment;

static inline uint8_t *chunk_bits(chunk *of, int64_t offset)
{
    return (uint8_t *)of + offset;
}

static inline bool bit_get(const uint8_t *bits, int64_t place)
{
    return (bits[place >> 3] >> (place & 7) & 1) != 0;
}

static inline bool is_text(int32_t kind)
{
    return kind == STRING || kind == BINARY;
}

static inline const uint8_t *chunk_key(const chunk *of, int32_t at, int64_t *length)
{
    *length = of->keys[at].length;
    return of->heap + of->keys[at].offset;
}

void chunk_release(chunk *of);

/* The row of a key, or ABSENT. */
int64_t table_find(const table *in, const uint8_t *key, int64_t length, uint64_t hash);

/* The same in steps, each of which fetches the memory that the next one needs: so several keys can be searched at a
 * time. `search_row` returns the row that probably has the key, or ABSENT if no row has it.
 */
void search_slot(const table *in, uint64_t hash);
int64_t search_row(const table *in, uint64_t hash);
void search_key(const table *in, int64_t row);
int64_t search_end(const table *in, int64_t row, const uint8_t *key, int64_t length, uint64_t hash);

/* The row of a new key. ABSENT where memory is missing, or for a key group that does not exist. */
int64_t table_add(table *to, const uint8_t *key, int64_t length, uint64_t hash, uint16_t group);

bool table_remove(table *from, int64_t row, uint64_t hash);

/* The chunk of a row, for a change. */
chunk *table_own(table *of, int64_t row);

/* Sets a text of a row. The chunk belongs to the table. */
bool chunk_set_text(const layout *of, chunk *to, span *text, const uint8_t *bytes, int64_t length);

#pragma GCC visibility pop

#endif
