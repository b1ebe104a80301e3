# The first process of the node: it has its own network, mounts and process ids, so that all of them go with it.
# Arguments: folder of this run, folder of the programs, kubelet, kubeconfig, name and address of the node, then what the
# forwarder carries.
set -eu
dir=$1 programs=$2 kubelet=$3 kubeconfig=$4 name=$5 address=$6
shift 6
PATH=$programs/usr/bin:$programs/usr/sbin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH

# Folders whose names are fixed in containerd and the kubelet.
for own in /run /var/log /var/lib/kubelet; do
    mkdir -p "$own"
    mount -t tmpfs tmpfs "$own"
done
# The kubelet sets these for the whole machine: here it gets files to write to instead.
for setting in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops \
    kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do
    file=/run/$(echo "$setting" | tr / .)
    cat "/proc/sys/$setting" >"$file"
    mount --bind "$file" "/proc/sys/$setting"
done
# Pods come out of their own networks into this one, and find here the address that the cluster gives its API server.
ip link set lo up
ip address add "$address/32" dev lo

python3 "$dir/forward.py" "$@" >"$dir/forward.log" 2>&1 &
containerd --config "$dir/containerd.toml" >"$dir/containerd.log" 2>&1 &
until ctr --address "$dir/containerd.sock" version >/dev/null 2>&1; do sleep 0.1; done
ctr --address "$dir/containerd.sock" --namespace k8s.io images import "$dir/pause.tar"
"$kubelet" --config="$dir/kubelet.json" --kubeconfig="$kubeconfig" --root-dir="$dir/kubelet" \
    --cert-dir="$dir/pki" --hostname-override="$name" --node-ip="$address" >"$dir/kubelet.log" 2>&1
