#!/bin/sh
# What the service `init` of compose.yaml does. It puts the first plan into etcd if there is none,
# and makes what is missing at the desk: CA, certificates, secret of the cluster, users, admin
# token. Then it hands each node its part. At the first start that is all of it; later it hands out
# what was changed at the desk.
set -eu
umask 077
desk=${DESK:-/desk}
own=${OWN:-/own}
cluster=${CLUSTER:-/etc/penstock/cluster/cluster.toml}
mkdir -p "$desk"
cd "$desk"

random() { head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n'; }
hand() { install -o "$2" -g "$2" -m 0400 "$1" "$3.new" && mv "$3.new" "$3"; }

[ -f cluster-secret ] || random > cluster-secret
[ -f admin-token ] || random > admin-token
# The cluster's file names it where the nodes have it.
hand cluster-secret 65532 "$own/1/cluster-secret"
[ -f certs/node-3.pem ] || penstock cluster certs --file "$cluster" --out certs
if [ -n "${PENSTOCK_ETCD_ENDPOINTS:-}" ]; then
    # A member of etcd that has just begun does not answer at once.
    tries=0
    until told=$(penstock cluster show 2>&1); do
        case $told in *"there is none"*)
            penstock cluster import "$cluster" && penstock cluster failover on
            break
        esac
        tries=$((tries + 1))
        [ "$tries" -lt 60 ] || { echo "$told" >&2; exit 1; }
        sleep 1
    done
fi
export PENSTOCK_USERS="$desk/users"
if [ ! -f users ]; then
    # People look and administer; the probe of each container may log in and nothing else. A till
    # sells by the programs of the schema and reads what it sold.
    penstock user add ops > ops.secret
    penstock user grant ops read ''
    penstock user grant ops write ''
    penstock user grant ops admin ''
    penstock user add probe --key one > probe.secret
    penstock user add till > till.secret
    penstock user grant till run restock buy confirm cancel on stock: order: buyer:
    penstock user grant till read stock: order: buyer:
fi

for node in 1 2 3; do
    for file in cluster-secret users admin-token probe.secret certs/ca.pem; do
        hand "$file" 65532 "$own/$node/${file##*/}"
    done
    hand "certs/node-$node.key" 65532 "$own/$node/node.key"
    hand "certs/node-$node.pem" 65532 "$own/$node/node.pem"
done
# Prometheus reads as nobody.
hand certs/ca.pem 65534 "$own/prometheus/ca.pem"
hand admin-token 65534 "$own/prometheus/admin-token"
