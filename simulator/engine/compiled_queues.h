/* Queues and timers of the compiled engine. */

static double least(double a, double b) { return b < a ? b : a; }
static double most(double a, double b) { return b > a ? b : a; }

/* Keys that are times or rates, from 0 on, are the whole numbers of their bits, which are in the same order and compared
 * in fewer steps. */
static i64 key_of(double value)
{
    i64 key;
    memcpy(&key, &value, sizeof key);
    return key;
}

static double value_of(i64 key)
{
    double value;
    memcpy(&value, &key, sizeof value);
    return value;
}

static int before(const Entry *a, const Entry *b) /* without branches, which would be guessed wrongly */
{
    return (a->key < b->key) | ((a->key == b->key) & (a->tie < b->tie));
}

/* A queue is a heap of four to a node: half as deep as one of two. */
static void push(Entry *heap, i64 *count, Entry entry)
{
    i64 i = (*count)++;
    for (; i > 0 && before(&entry, &heap[(i - 1) / 4]); i = (i - 1) / 4) heap[i] = heap[(i - 1) / 4];
    heap[i] = entry;
}

static i64 first_of(const Entry *heap, i64 a, i64 b) { return before(&heap[b], &heap[a]) ? b : a; }

static Entry pop(Entry *heap, i64 *count)
{
    Entry top = heap[0], last = heap[--*count];
    i64 i = 0;
    for (i64 child; (child = 4 * i + 1) < *count; i = child) {
        if (child + 3 < *count)
            child = first_of(heap, first_of(heap, child, child + 1), first_of(heap, child + 2, child + 3));
        else
            for (i64 next = child + 1; next < *count; next++) child = first_of(heap, child, next);
        if (!before(&heap[child], &last)) break;
        heap[i] = heap[child];
    }
    heap[i] = last;
    return top;
}

static int ascending(const void *a, const void *b)
{
    i64 x = *(const i64 *)a, y = *(const i64 *)b;
    return (x > y) - (x < y);
}

static void sort(i64 *values, i64 count)
{
    for (i64 i = 1; i < count; i++)
        if (values[i] < values[i - 1]) { qsort(values, (size_t)count, sizeof *values, ascending); return; }
}

/* When the next activity of each class ends, and above that, level by level up to one value, the least of each row: to
 * change one looks at a row or two, with few branches to guess. */
enum { ROW = 8 };

static double least_of_row(const double *row)
{
    double a = least(row[0], row[1]), b = least(row[2], row[3]), c = least(row[4], row[5]), d = least(row[6], row[7]);
    return least(least(a, b), least(c, d));
}

static void set_end(Run *r, i64 place, double end_s)
{
    double *level = r->ends_s;
    level[place] = end_s;
    for (const i64 *size = r->level_size; *size > 1; size++) {
        place /= ROW;
        end_s = least_of_row(level + ROW * place);
        level += *size;
        if (level[place] == end_s) return;
        level[place] = end_s;
    }
    r->first_end_s = end_s;
}

/* A class with the first end: down from the highest level by what equals it. */
static i64 first_to_end(const Run *r)
{
    const double *level = r->ends_s;
    const i64 *size = r->level_size;
    for (; *size > 1; size++) level += *size;
    i64 place = 0;
    while (size > r->level_size) {
        level -= *--size;
        place *= ROW;
        while (level[place] != r->first_end_s) place++;
    }
    return place;
}

/* ---- time ---- */

static void request_wake(Run *r)
{
    if (r->wake_allowed) { r->wake_allowed = 0; r->wake_requested = 1; }
}

static void set_timer(Run *r, double delay_s, i64 event)
{
    double at_s = r->now_s + delay_s;
    if (at_s == r->now_s) r->instant[r->tail++] = event;
    else push(r->timer, &r->timers, (Entry){key_of(at_s), r->order++, event});
}
