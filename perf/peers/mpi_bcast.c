/* Times MPI_Bcast the way `lochos perf bcast` times a broadcast: each iteration starts at a
 * barrier, ends when the slowest rank has all bytes, and every byte is checked (not timed).
 *
 * usage: mpi_bcast BYTES ITERATIONS     (one more iteration runs first and is not counted)
 * Rank 0 prints one JSON object with the seconds of every iteration.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* A pattern that differs at every word and in every iteration, so stale bytes are noticed. */
static uint64_t word_at(size_t index, int iteration) {
  return (index + 1) * 0x9E3779B97F4A7C15u ^ (uint64_t)(unsigned)iteration << 56;
}

static void fill(uint64_t* words, size_t count, int iteration) {
  for (size_t i = 0; i < count; ++i)
    words[i] = word_at(i, iteration);
}

static int is_right(const uint64_t* words, size_t count, int iteration) {
  for (size_t i = 0; i < count; ++i)
    if (words[i] != word_at(i, iteration)) return 0;
  return 1;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const long bytes = argc == 3 ? atol(argv[1]) : 0;
  const int iterations = argc == 3 ? atoi(argv[2]) : 0;
  if (bytes <= 0 || bytes % 8 != 0 || bytes > INT32_MAX || iterations <= 0) {
    if (rank == 0) fprintf(stderr, "usage: mpi_bcast BYTES ITERATIONS (bytes: a multiple of 8)\n");
    MPI_Finalize();
    return 2;
  }
  const size_t count = (size_t)bytes / 8;
  uint64_t* words = malloc((size_t)bytes);
  double* slowest = calloc((size_t)iterations + 1, sizeof *slowest);
  if (words == NULL || slowest == NULL) MPI_Abort(MPI_COMM_WORLD, 1);

  int wrong = 0;
  for (int iteration = 0; iteration <= iterations; ++iteration) {
    if (rank == 0) fill(words, count, iteration);
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    MPI_Bcast(words, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
    const double own = MPI_Wtime() - start;
    MPI_Reduce(&own, &slowest[iteration], 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (!is_right(words, count, iteration)) ++wrong;
  }

  int wrong_in_all = 0;
  MPI_Reduce(&wrong, &wrong_in_all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) {
    printf("{\"ranks\": %d, \"size\": %ld, \"wrong\": %d, \"seconds\": [", ranks, bytes,
           wrong_in_all);
    for (int i = 1; i <= iterations; ++i)
      printf("%s%.6f", i == 1 ? "" : ", ", slowest[i]);
    printf("]}\n");
  }
  free(slowest);
  free(words);
  MPI_Finalize();
  return wrong_in_all == 0 ? 0 : 1;
}
