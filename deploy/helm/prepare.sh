#!/bin/sh
# What must be there before the chart: the plan in etcd, with failover on, and a folder of files for
# its Secret. Where it has run before, it makes what is missing.
#   prepare.sh FOLDER RELEASE NAMESPACE [FIRST-LAST]
# The last are the ports of the cores for clients of Redis: 7430-7431 for respShardPorts 7430.
#   kubectl create secret generic penstock --from-file=FOLDER
# It needs `penstock`, and the etcd of PENSTOCK_ETCD_ENDPOINTS and the variables beside it.
# The folder `FOLDER.ca` has the key that signs certificates: keep it away from the cluster.
set -eu
umask 077
folder=$1 release=$2 namespace=$3 cores=${4:+,$4}
: "${PENSTOCK_ETCD_ENDPOINTS:?the etcd that is to have the plan}"
mkdir -p "$folder" "$folder.ca"

random() { head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n'; }
name() { printf '%s-%s.%s.%s.svc' "$release" "$(($1 - 1))" "$release" "$namespace"; }

[ -f "$folder/cluster-secret" ] || random > "$folder/cluster-secret"
[ -f "$folder/admin-token" ] || random > "$folder/admin-token"
if ! penstock cluster show > /dev/null 2>&1; then
    # Each pod says where it takes links when it starts.
    penstock cluster init --secret-file "$folder.ca/unused.secret" \
        --node "1,127.0.0.1:7414,$(name 1):7411,$(name 1):7413$cores" \
        --node "2,127.0.0.2:7414,$(name 2):7411,$(name 2):7413$cores" \
        --node "3,127.0.0.3:7414,$(name 3):7411,$(name 3):7413$cores"
    rm -f "$folder.ca/unused.secret"
    penstock cluster failover on
fi
if [ ! -f "$folder/node-3.pem" ]; then
    penstock cluster certs --out "$folder.ca" \
        --name "1=$release.$namespace.svc" --name "2=$release.$namespace.svc" \
        --name "3=$release.$namespace.svc"
    cp "$folder.ca/ca.pem" "$folder.ca"/node-?.pem "$folder.ca"/node-?.key "$folder"
fi
export PENSTOCK_USERS="$folder/users"
if [ ! -f "$folder/users" ]; then
    # People look and administer; a node that stops asks the others how they are, which is INFO. A
    # till sells by the programs of the schema and reads what it sold.
    penstock user add ops > "$folder.ca/ops.secret"
    penstock user grant ops read ''
    penstock user grant ops write ''
    penstock user grant ops admin ''
    penstock user add node > "$folder/node.secret"
    penstock user grant node admin ''
    penstock user add till > "$folder.ca/till.secret"
    penstock user grant till run restock buy confirm cancel on stock: order: buyer:
    penstock user grant till read stock: order: buyer:
fi
