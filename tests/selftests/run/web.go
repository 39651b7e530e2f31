// SPDX-License-Identifier: GPL-2.0

// An HTTP server and client in Go, which has no libc and asks for MPTCP where it listens.
//
//	web serve ADDRESS      says "serving" and answers with 200,000 bytes that depend on the path
//	web get COUNT URL      gets URL/0 to URL/COUNT-1, eight at a time, each by a connection of its own,
//	                       and says "got COUNT" if all answers are right
package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

func answer(path string) []byte {
	return bytes.Repeat([]byte(fmt.Sprintf("%9s.", path)), 20000)
}

func serve(address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	fmt.Println("serving", listener.Addr())
	return http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Write(answer(r.URL.Path))
	}))
}

func get(client *http.Client, url string, path string) error {
	response, err := client.Get(url + path)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && !bytes.Equal(body, answer(path)) {
		err = fmt.Errorf("%s: %d other bytes", path, len(body))
	}
	return err
}

func getAll(count int, url string) error {
	client := &http.Client{
		Transport: &http.Transport{DisableKeepAlives: true},
		Timeout:   3 * time.Minute,
	}
	done, room := make(chan error), make(chan bool, 8)
	for n := 0; n < count; n++ {
		go func(path string) {
			room <- true
			err := get(client, url, path)
			<-room
			done <- err
		}("/" + strconv.Itoa(n))
	}
	var first error
	for n := 0; n < count; n++ {
		if err := <-done; err != nil {
			first = err
		}
	}
	if first == nil {
		fmt.Println("got", count)
	}
	return first
}

func main() {
	var err error
	switch {
	case len(os.Args) == 3 && os.Args[1] == "serve":
		err = serve(os.Args[2])
	case len(os.Args) == 4 && os.Args[1] == "get":
		count, _ := strconv.Atoi(os.Args[2])
		err = getAll(count, strings.TrimSuffix(os.Args[3], "/"))
	default:
		err = fmt.Errorf("usage: web serve ADDRESS, web get COUNT URL")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
