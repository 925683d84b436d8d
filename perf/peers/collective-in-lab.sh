# shellcheck shell=bash
# Runs in tests/lab/shaped --script, called by perf/peers/collective.
# arguments: DIRECTORY-OF-PEERS MPI_COLLECTIVE OP SIZE ITERATIONS LOCHOS-OR-- NAME=MPI-OPTIONS…
# Prints lines `NAME JSON`; the first is the pair's goodput.
peers=$1 mpi_collective=$2 op=$3 size=$4 iterations=$5 lochos=$6
shift 6

wait_for_port() { until on 0 ss -Hltn "sport = $1" | grep -q .; do sleep 0.02; done; }

# CPU seconds of the machine so far.
busy() { awk '/^cpu / { print ($2 + $3 + $4 + $7 + $8) / 100 }' /proc/stat; }

# measured NAME COMMAND…: the command's JSON, and how busy the processors were meanwhile.
measured() {
  local name=$1 start=$EPOCHREALTIME cpu
  shift
  cpu=$(busy)
  local json
  json=$("$@" | tr '\n' ' ') || echo "$name failed" >&2
  awk -v name="$name" -v json="$json" -v wall="$(awk "BEGIN { print $EPOCHREALTIME - $start }")" \
    -v cpu="$(awk "BEGIN { print $(busy) - $cpu }")" -v cores="$(nproc)" \
    'BEGIN { printf "%s {\"cpu_share\": %.3f, \"result\": %s}\n", name, cpu / wall / cores, json }'
}

# The first second is left out: it holds slow start and the bucket's burst.
pair() {
  on 0 iperf3 -s -1 >/dev/null &
  wait_for_port 5201
  on 1 iperf3 -c node0 -O 1 -t 4 -J
  wait $!
}

mpi() {
  local hosts=node0 rank
  for ((rank = 1; rank < LOCHOS_LAB_SIZE; rank++)); do hosts+=,node$rank; done
  # Ranks that wait give the processor away: there are more of them than processors.
  on 0 mpirun --allow-run-as-root -H "$hosts" --mca plm_rsh_agent "$peers/mpi_agent" \
    --mca btl tcp,self --mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0 \
    --mca mpi_yield_when_idle 1 "$@" "$mpi_collective" "$op" "$size" "$iterations"
}

lochos() {
  local directory=10.76.0.1:7400 rank pids=()
  on 0 "$lochos" directory --listen "$directory" >/dev/null &
  local server=$!
  wait_for_port 7400
  for ((rank = LOCHOS_LAB_SIZE - 1; rank >= 0; rank--)); do
    on "$rank" "$lochos" perf "$op" --directory "$directory" --ranks "$LOCHOS_LAB_SIZE" \
      --rank "$rank" --size "$size" --iterations "$iterations" \
      --json "$LOCHOS_LAB_DIR/lochos.$rank" >/dev/null &
    pids+=($!)
  done
  wait "${pids[@]}"
  kill "$server"
  wait "$server"
  cat "$LOCHOS_LAB_DIR/lochos.0"
}

measured pair pair
if [[ $lochos != - ]]; then measured lochos lochos; fi
for setting in "$@"; do
  read -ra options <<<"${setting#*=}"
  measured "${setting%%=*}" mpi "${options[@]}"
done
