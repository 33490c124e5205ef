// Command points has two steps and writes one file, to see what a build holds.
package main

import (
	"fmt"
	"os"

	"skc.dev/skc/effects/fault"
	"skc.dev/skc/effects/files"
)

var (
	pointWrite = fault.New("pointsdemo.write")
	pointAsk   = fault.New("pointsdemo.ask")
)

func main() {
	if len(os.Args) == 1 {
		for _, place := range fault.List() {
			fmt.Println(place)
		}
		return
	}
	if err := pointAsk.At(fault.Before); err != nil {
		fmt.Println("ask:", err)
		os.Exit(1)
	}
	var l files.Layer
	if err := l.Write(pointWrite, os.Args[1], []byte("new"), files.Durable); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}
