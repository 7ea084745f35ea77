// Makes filters with bits-and-blooms/bloom and with go-zero's formula, and records their answers. compare.py describes
// the files.
//
//	blooms FOLDER SEED
package main

import (
	"bufio"
	"bytes"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"strconv"

	"github.com/bits-and-blooms/bloom"
	"github.com/spaolacci/murmur3"
)

const (
	questions = 50_000 // about members, and the same number about strangers
	adds      = 1_000  // after the questions
)

// filter has the methods that both kinds of filters have in common.
type filter interface {
	Test(item []byte) bool
	TestAndAdd(item []byte) bool // returns whether the item was present before
	file() []byte
}

// original is the filter of bits-and-blooms, unchanged.
type original struct{ *bloom.BloomFilter }

func (f original) file() []byte {
	var out bytes.Buffer
	if _, err := f.WriteTo(&out); err != nil {
		panic(err)
	}
	return out.Bytes()
}

// goZero applies go-zero's formula to a bitmap with SETBIT's bit order. The hash comes from the package that go-zero
// uses.
type goZero struct {
	bitmap []byte
	bits   uint64
}

const goZeroMaps = 14

func (f goZero) places(item []byte) (places [goZeroMaps]uint64) {
	for i := range places {
		places[i] = murmur3.Sum64(append(append([]byte{}, item...), byte(i))) % f.bits
	}
	return
}

func (f goZero) Test(item []byte) bool {
	for _, place := range f.places(item) {
		if f.bitmap[place/8]&(0x80>>(place%8)) == 0 {
			return false
		}
	}
	return true
}

func (f goZero) TestAndAdd(item []byte) bool {
	present := f.Test(item)
	for _, place := range f.places(item) {
		f.bitmap[place/8] |= 0x80 >> (place % 8)
	}
	return present
}

// file returns the bitmap without zeros at its end, because SETBIT makes a string no longer than necessary.
func (f goZero) file() []byte { return bytes.TrimRight(f.bitmap, "\x00") }

func randomItem(random *rand.Rand) []byte {
	item := make([]byte, random.Intn(65))
	random.Read(item)
	return item
}

// record fills the filter, writes it to a file, and then records its answers.
func record(folder, name, words string, f filter, items int, random *rand.Rand) {
	members := make([][]byte, items)
	for i := range members {
		members[i] = randomItem(random)
		f.TestAndAdd(members[i])
	}
	check(os.WriteFile(filepath.Join(folder, name+".filter"), f.file(), 0o644))
	file, err := os.Create(filepath.Join(folder, name+".log"))
	check(err)
	out := bufio.NewWriter(file)
	fmt.Fprintln(out, words)
	write := func(kind string, answer bool, item []byte) {
		number := 0
		if answer {
			number = 1
		}
		fmt.Fprintf(out, "%s%d %x\n", kind, number, item)
	}
	ask := func(count int) {
		for i := 0; i < count; i++ {
			known := randomItem(random) // an empty filter has no members
			if items > 0 {
				known = members[random.Intn(items)]
			}
			stranger := randomItem(random)
			write("?", f.Test(known), known)
			write("?", f.Test(stranger), stranger)
		}
	}
	ask(questions)
	for i := 0; i < adds; i++ {
		item := randomItem(random)
		write("+", !f.TestAndAdd(item), item)
		write("?", f.Test(item), item)
	}
	ask(adds)
	check(out.Flush())
	check(file.Close())
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	folder := os.Args[1]
	seed, err := strconv.ParseInt(os.Args[2], 10, 64)
	check(err)
	random := rand.New(rand.NewSource(seed))

	type promise struct {
		capacity uint
		rate     float64
		items    int
	}
	for _, p := range []promise{
		{1, 0.5, 1},
		{100, 0.01, 100},
		{100, 0.01, 0},
		{1_000, 0.1, 1_000},
		{1_000, 0.01, 5_000}, // far over its capacity
		{10_000, 0.001, 10_000},
		{100_000, 0.03, 80_000},
		{1_000_000, 0.000_01, 1_000_000},
	} {
		f := original{bloom.NewWithEstimates(p.capacity, p.rate)}
		record(folder, fmt.Sprintf("blooms-%d-%v-%d", p.capacity, p.rate, p.items), "BLOOMV3", f, p.items, random)
	}
	for _, shape := range [][2]uint{{1, 1}, {64, 30}, {65, 3}, {100_003, 5}} {
		f := original{bloom.New(shape[0], shape[1])}
		items := int(shape[0] / shape[1] / 2)
		record(folder, fmt.Sprintf("blooms-m%d-k%d", shape[0], shape[1]), "BLOOMV3", f, items, random)
	}
	for _, items := range []int{0, 1, 100, 1_999, 50_000, 500_000} {
		// Twenty bits per item, as go-zero's authors recommend, and 7 more, so that the last byte is only partly used.
		bits := uint64(20*items + 7)
		f := goZero{make([]byte, bits/8+1), bits}
		record(folder, fmt.Sprintf("gozero-%d", items), fmt.Sprintf("GOZERO BITS %d", bits), f, items, random)
	}
	f := goZero{make([]byte, 1_001), 8_001}
	record(folder, "gozero-crowded", "GOZERO BITS 8001", f, 2_000, random)
}
