// go get github.com/gomodule/redigo, or Debian: golang-github-gomodule-redigo-dev
package main

import (
	"encoding/binary"
	"fmt"
	"log"
	"os"

	"github.com/gomodule/redigo/redis"
)

// items is the argument of BULKADD and BULKTEST: each item, preceded by its length (32 bits, little-endian).
func items(texts ...string) (blob []byte) {
	for _, item := range texts {
		blob = binary.LittleEndian.AppendUint32(blob, uint32(len(item)))
		blob = append(blob, item...)
	}
	return blob
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func main() {
	client := must(redis.Dial("tcp", "127.0.0.1:"+os.Args[1]))
	defer client.Close()
	must(client.Do("BF.RESERVE", "users", 0.001, 1000))
	isNew := must(redis.Int(client.Do("BF.ADD", "users", "ada")))
	more := must(redis.Int(client.Do("BF.BULKADD", "users", "PREFIXED", items("ada", "grace"))))
	bits := must(redis.Bytes(client.Do("BF.BULKTEST", "users", "PREFIXED", items("ada", "barbara"))))
	stats := must(redis.Values(client.Do("BF.STATS", "users"))) // alternating names and values
	for index := 0; index < len(stats); index += 2 {
		if name := must(redis.String(stats[index], nil)); name == "Number of items inserted" {
			fmt.Printf("%d %d %x %d\n", isNew, more, bits, stats[index+1])
		}
	}
}
