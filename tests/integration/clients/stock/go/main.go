// A stranger's client: go-amqp, another implementation of AMQP 1.0. Logs in, sends one message, and prints one JSON line.
//
//	login URL CA plain USER PASSWORD LOG
//	login URL CA token USER TOKEN LOG
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"os"
	"time"

	"github.com/Azure/go-amqp"
)

func main() {
	said := map[string]any{"sent": true}
	if err := run(os.Args[1:]); err != nil {
		said = map[string]any{"error": err.Error()}
	}
	_ = json.NewEncoder(os.Stdout).Encode(said)
}

func run(words []string) error {
	url, ca, how, user, secret, log := words[0], words[1], words[2], words[3], words[4], words[5]
	ctx, cancel := context.WithTimeout(context.Background(), 120*time.Second)
	defer cancel()
	pem, err := os.ReadFile(ca)
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	options := &amqp.ConnOptions{TLSConfig: &tls.Config{RootCAs: pool}, SASLType: amqp.SASLTypePlain(user, secret)}
	if how == "token" {
		options.SASLType = amqp.SASLTypeXOAUTH2(user, secret, 4096)
	}
	connection, err := amqp.Dial(ctx, url, options)
	if err != nil {
		return err
	}
	defer connection.Close()
	session, err := connection.NewSession(ctx, nil)
	if err != nil {
		return err
	}
	sender, err := session.NewSender(ctx, log, nil)
	if err != nil {
		return err
	}
	return sender.Send(ctx, amqp.NewMessage([]byte("go")), nil)
}
