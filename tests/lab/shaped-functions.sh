# shellcheck shell=bash
# shellcheck disable=SC2153
# What a script of tests/lab/shaped can do to the nodes (see its --help). Sourced before the script,
# outside the nodes, where the bridge is.

_lab_holder() {
  local -a holders
  read -ra holders <<<"$LOCHOS_LAB_HOLDERS"
  if [[ ! $1 =~ ^[0-9]+$ || $1 -ge ${#holders[@]} ]]; then
    echo "shaped: no node '$1'; there are 0 to $((${#holders[@]} - 1))" >&2
    return 1
  fi
  echo "${holders[$1]}"
}

# The word number $1 of the list in $2.
_lab_word() {
  local -a words
  read -ra words <<<"$2"
  echo "${words[$1]}"
}

address() { _lab_word "$1" "$LOCHOS_LAB_ADDRESSES"; }
address6() { _lab_word "$1" "$LOCHOS_LAB_ADDRESSES6"; }

# Sets what a command on the node must have, and the array of words that take it there.
_lab_enter() {
  local holder
  holder=$(_lab_holder "$1") || return
  export LOCHOS_LAB_RANK=$1
  LOCHOS_LAB_ADDRESS=$(address "$1")
  LOCHOS_LAB_ADDRESS6=$(address6 "$1")
  export LOCHOS_LAB_ADDRESS LOCHOS_LAB_ADDRESS6
  _lab_words=(nsenter -t "$holder" -m -n -u -i -F --wdns="$PWD" --)
}

on() (
  _lab_enter "$1" || exit
  shift
  exec "${_lab_words[@]}" "$@"
)

# As `on … &`, which leaves a shell between: here $! is the command itself, and can be killed.
begin() {
  _lab_enter "$1" || return
  shift
  "${_lab_words[@]}" "$@" &
}

# One number is a node; anything else is meant for cut(1).
cut() {
  if [[ $# == 1 && $1 =~ ^[0-9]+$ ]]; then
    ip link set "port$1" down
  else
    command cut "$@"
  fi
}

# A disabled port drops every frame while both ends keep their carrier: nobody is told.
blackhole() { bridge link set dev "port$1" state 0; }

heal() {
  ip link set "port$1" up && bridge link set dev "port$1" state 3
}

rate() {
  local action=replace
  ip link show "port$1" >/dev/null || return
  if [[ $2 == none ]]; then
    tc qdisc del dev "port$1" root 2>/dev/null
    on "$1" tc qdisc del dev eth0 root 2>/dev/null
    return 0
  fi
  local shape=(root tbf rate "$2" burst 1mb latency 20ms)
  tc qdisc "$action" dev "port$1" "${shape[@]}" && on "$1" tc qdisc "$action" dev eth0 "${shape[@]}"
}

kill_connections() {
  local rank=$1
  shift
  on "$rank" ss -K -t -n -H "$@" >/dev/null
}

kill_node() {
  local holder network process
  holder=$(_lab_holder "$1") || return
  network=$(readlink "/proc/$holder/ns/net")
  for process in /proc/[0-9]*; do
    if [[ $(readlink "$process/ns/net") == "$network" && $process != "/proc/$holder" ]]; then
      kill -9 "${process#/proc/}" 2>/dev/null
    fi
  done
  return 0
}

# What the bridge's port receives is what the node sends.
sent() { cat "/sys/class/net/port$1/statistics/rx_bytes"; }
received() { cat "/sys/class/net/port$1/statistics/tx_bytes"; }
