# One machine: a root of its own over the root of this one. Its network namespace is there already.
# Arguments: the folder of the machine, the folder that all machines share, the working directory.
set -e
mount --make-rprivate /
mkdir -p "$1/over" "$1/lib"
mount -t tmpfs tmpfs "$1/over"
mkdir "$1/over/upper" "$1/over/work" "$1/over/root"
root=$1/over/root
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/over/upper,workdir=$1/over/work" "$root"
mount --rbind /dev "$root/dev"
mount --rbind /sys "$root/sys"
mount -t proc proc "$root/proc"
mount -t tmpfs tmpfs "$root/run"
mkdir -p "$root/var/lib/penstock" "$root/mnt/machines"
# Not on the overlay: a data directory needs a file system with O_DIRECT.
mount --bind "$1/lib" "$root/var/lib/penstock"
mount --bind "$2" "$root/mnt/machines"
rm -rf "$root/etc/penstock"
cp "$3/scp" "$3/systemctl" "$root/usr/local/bin/"
chmod 0755 "$root/usr/local/bin/scp" "$root/usr/local/bin/systemctl"
cd "$root"
exec chroot . /bin/bash --norc --noprofile -c "cd '$3'; exec bash --norc --noprofile 2>&1"
