# What replication over a device takes, on three hosts, beside perftest's figures on two of them. Lines `figure NAME VALUE` are what it comes to.
raw() {
  for size in 64 256 1024 4096; do
    bash /guest/perftest.sh ib_write_lat "$size" 5 "ib_write_lat_us.$size" -n 300
  done
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
  ip netns exec host1 /guest/device member --me 1 --members $members --folder "$2/bench-m1" --answerers $answerers --waiting "$3" --rounds "$rounds" --stretches "$stretches" \
    --beside "bash /guest/perftest.sh ib_write_bw 65536 4 ib_write_bw_mib_s -n 320" ||
    { cat /tmp/answer* /tmp/m?; exit 1; }
  wait $answering
  kill $others
  wait
  rm -rf "$2"/bench-m*
}
