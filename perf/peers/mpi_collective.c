/* Times one of MPI's collective operations the way `lochos perf` times its own: each iteration
 * starts at a barrier, ends when the slowest rank that gets a result has it, and every element is
 * checked (not timed).
 *
 * usage: mpi_collective bcast|reduce|allreduce BYTES ITERATIONS     (one more iteration runs first
 * and is not counted; reductions are sums of floats)
 * Rank 0 prints one JSON object with the seconds of every iteration.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Whole numbers that stay exact in a float when a few hundred ranks are added. They differ from one
 * element and iteration to the next, so stale results are noticed. */
static float value_at(size_t index, int rank, int iteration) {
  return (float)((index * 7 + (size_t)iteration * 13 + (size_t)rank) % 1000);
}

static void fill(float* values, size_t count, int rank, int iteration) {
  for (size_t i = 0; i < count; ++i)
    values[i] = value_at(i, rank, iteration);
}

/* Whether these are the values of rank 0 (terms = 1) or the sum of those of the first `terms`. */
static int is_right(const float* values, size_t count, int terms, int iteration) {
  for (size_t i = 0; i < count; ++i) {
    float expected = 0;
    for (int rank = 0; rank < terms; ++rank)
      expected += value_at(i, rank, iteration);
    if (values[i] != expected) return 0;
  }
  return 1;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const char* op = argc == 4 ? argv[1] : "";
  const long bytes = argc == 4 ? atol(argv[2]) : 0;
  const int iterations = argc == 4 ? atoi(argv[3]) : 0;
  const int is_bcast = strcmp(op, "bcast") == 0, is_reduce = strcmp(op, "reduce") == 0;
  const int is_allreduce = strcmp(op, "allreduce") == 0;
  if (bytes <= 0 || bytes % 4 != 0 || bytes > INT32_MAX || iterations <= 0 ||
      !(is_bcast || is_reduce || is_allreduce)) {
    if (rank == 0)
      fprintf(stderr, "usage: mpi_collective bcast|reduce|allreduce BYTES ITERATIONS\n"
                      "BYTES: a multiple of 4\n");
    MPI_Finalize();
    return 2;
  }
  const int count = (int)(bytes / 4);
  float* input = malloc((size_t)bytes);
  float* result = malloc((size_t)bytes);
  double* slowest = calloc((size_t)iterations + 1, sizeof *slowest);
  if (input == NULL || result == NULL || slowest == NULL) MPI_Abort(MPI_COMM_WORLD, 1);

  int wrong = 0;
  for (int iteration = 0; iteration <= iterations; ++iteration) {
    fill(input, (size_t)count, rank, iteration);
    if (is_bcast) memcpy(result, input, (size_t)bytes);
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    if (is_bcast) MPI_Bcast(result, count, MPI_FLOAT, 0, MPI_COMM_WORLD);
    if (is_reduce) MPI_Reduce(input, result, count, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (is_allreduce) MPI_Allreduce(input, result, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    const int has_result = !is_reduce || rank == 0;
    const double own = has_result ? MPI_Wtime() - start : 0;
    MPI_Reduce(&own, &slowest[iteration], 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (has_result && !is_right(result, (size_t)count, is_bcast ? 1 : ranks, iteration)) ++wrong;
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
  free(result);
  free(input);
  MPI_Finalize();
  return wrong_in_all == 0 ? 0 : 1;
}
