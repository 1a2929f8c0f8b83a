# One of perftest's programs from the first host to the second, under bash: busybox's shell prefers its own `ip`. Prints `figure NAME VALUE`.
tool=$1 size=$2 column=$3 figure=$4 # of which the value is the column in the last row
shift 4
ip netns exec host2 "$tool" -d rxe2 -x 1 -F -s "$size" "$@" >/tmp/server 2>&1 &
server=$!
sleep 0.5
ip netns exec host1 "$tool" -d rxe1 -x 1 -F -s "$size" "$@" 10.0.0.2 >/tmp/client 2>&1 || { cat /tmp/client /tmp/server; exit 1; }
wait $server
awk -v size="$size" -v column="$column" -v figure="$figure" '$1 == size { print "figure", figure, $column }' /tmp/client
