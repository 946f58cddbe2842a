# Waits for the end of the test process, which holds the other end of standard input; then kills each process that names
# the folder in its command line, with its children, and deletes the folder. A server's processes besides its first do
# not name it.
trap '' INT TERM HUP QUIT
read -r _
while
    processes=$(printf '%s/\n' "$folder" | grep -lsFf - /proc/[0-9]*/cmdline | cut -d / -f 3)
    [ -n "$processes" ]
do
    for process in $processes; do
        # shellcheck disable=SC2046
        kill -KILL $(cat "/proc/$process/task/$process/children") "$process"
    done
done 2>/dev/null
cd /
# The seventh line has the ID of the segment of shared memory that a killed server leaves.
segment=$(sed -n '7s/.* //p' "$folder/data/postmaster.pid" 2>/dev/null)
[ -z "$segment" ] || ipcrm -m "$segment" 2>/dev/null
rm -rf -- "$folder"
