// A server of one bucket with the protocol of S3, whose objects are in a file.
//
//	gofakes3 FILE ADDRESS BUCKET
package main

import (
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3bolt"
)

func main() {
	file, address, bucket := os.Args[1], os.Args[2], os.Args[3]
	backend, err := s3bolt.NewFile(file)
	if err != nil {
		log.Fatal(err)
	}
	exists := gofakes3.ResourceError(gofakes3.ErrBucketAlreadyExists, bucket)
	if err := backend.CreateBucket(bucket); err != nil && !errors.Is(err, exists) && err.Error() != exists.Error() {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("serving http://%s\n", listener.Addr())
	log.Fatal(http.Serve(listener, gofakes3.New(backend).Server()))
}
