#!/bin/sh
# Eight shards, one on each processor at a time, then the merge: sh xargs.sh [SOURCE [OUT.h5]]
set -e
in=${1:-sample_data/reach.h5} out=${2:-out.h5}
seq 0 7 | TRAJCLI_THREADS=1 xargs -P "$(nproc)" -I I \
    trajcli integrate "$in" --mode jerk --scheme zoh -o "$out" --shard I/8
trajcli merge "$out"
