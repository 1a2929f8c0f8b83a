# What replication over a device takes, on three hosts, beside perftest's figures on two of them. Lines `figure NAME VALUE` are what it comes to.
perftest() { # tool, size, column of its last row, name, more words
  tool=$1 size=$2 column=$3 figure=$4
  shift 4
  ip netns exec host2 "$tool" -d rxe2 -x 1 -F -s "$size" "$@" >/tmp/server 2>&1 &
  server=$!
  sleep 0.5
  ip netns exec host1 "$tool" -d rxe1 -x 1 -F -s "$size" "$@" 10.0.0.2 >/tmp/client 2>&1 || { cat /tmp/client /tmp/server; exit 1; }
  wait $server
  awk -v size="$size" -v column="$column" -v figure="$figure" '$1 == size { print "figure", figure, $column }' /tmp/client
}
raw() {
  for size in 64 256 1024 4096; do
    perftest ib_write_lat "$size" 5 "ib_write_lat_us.$size" -n 300
  done
  perftest ib_write_bw 65536 4 ib_write_bw_mib_s -n 300
}
group() { # number of members, folder, how the first member waits
  members=10.0.0.1:7001,10.0.0.2:7001
  answerers=10.0.0.2:7100
  hosts=2
  [ "$1" -eq 3 ] && members=$members,10.0.0.3:7001 answerers=$answerers,10.0.0.3:7100 hosts="2 3"
  others= answering=
  for i in $hosts; do
    ip netns exec "host$i" /guest/device answer "10.0.0.$i:7100" >"/tmp/answer$i" 2>&1 &
    answering="$answering $!"
    ip netns exec "host$i" /guest/device member --me "$i" --members $members --folder "$2/bench-m$i" >"/tmp/m$i" 2>&1 &
    others="$others $!"
  done
  echo "group of $1 in $2, $3"
  ip netns exec host1 /guest/device member --me 1 --members $members --folder "$2/bench-m1" --answerers $answerers --waiting "$3" --rounds "$rounds" --stretches "$stretches" ||
    { cat /tmp/answer* /tmp/m?; exit 1; }
  wait $answering
  kill $others
  wait
  rm -rf "$2"/bench-m*
}
