#!/bin/sh
# Gives the keyspaces of the sale of sale.toml their least level: with `all`, each node that may
# write next has what is acknowledged there, so a failover sells nothing twice. It may run again.
#   levels.sh [LEVEL]
# It needs `penstock`, a server that PENSTOCK_ADDR names, and the right `admin` where there are
# users. Other settings of the keyspaces stay.
set -eu
level=${1:-all}
for prefix in stock: order: buyer:; do
    penstock keyspace set "$prefix" --level-min "$level"
done
