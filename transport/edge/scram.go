package edge

import (
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"hash"
	"strconv"
	"strings"
)

// scram is the client side of one SCRAM exchange (RFC 5802, RFC 7677), without
// channel binding, as Kafka speaks it. sarama asks for one; kgo brings its own.
type scram struct {
	hash     func() hash.Hash
	user     string
	password string
	nonce    string
	step     int
	first    string // our first message, bare
	server   []byte // the signature that the server must show
}

func newScram256() *scram { return &scram{hash: sha256.New} }
func newScram512() *scram { return &scram{hash: sha512.New} }

var errScram = errors.New("SCRAM exchange failed")

// Begin implements sarama.SCRAMClient.
func (s *scram) Begin(user, password, _ string) error {
	s.user = strings.NewReplacer("=", "=3D", ",", "=2C").Replace(user)
	s.password, s.nonce, s.step = password, rand.Text(), 0
	return nil
}

// Done implements sarama.SCRAMClient.
func (s *scram) Done() bool { return s.step == 3 }

// Step implements sarama.SCRAMClient.
func (s *scram) Step(challenge string) (string, error) {
	s.step++
	switch s.step {
	case 1:
		s.first = "n=" + s.user + ",r=" + s.nonce
		return "n,," + s.first, nil
	case 2:
		return s.proof(challenge)
	case 3:
		signature, ok := strings.CutPrefix(challenge, "v=")
		given, err := base64.StdEncoding.DecodeString(signature)
		if !ok || err != nil || !hmac.Equal(given, s.server) {
			return "", fmt.Errorf("%w: the server does not know the password", errScram)
		}
		return "", nil
	}
	return "", errScram
}

func (s *scram) proof(challenge string) (string, error) {
	var nonce string
	var salt []byte
	var rounds int
	var err error
	for field := range strings.SplitSeq(challenge, ",") {
		name, value, _ := strings.Cut(field, "=")
		switch name {
		case "r":
			nonce = value
		case "s":
			salt, err = base64.StdEncoding.DecodeString(value)
		case "i":
			rounds, err = strconv.Atoi(value)
		}
		if err != nil {
			return "", fmt.Errorf("%w: %w", errScram, err)
		}
	}
	if !strings.HasPrefix(nonce, s.nonce) || len(nonce) == len(s.nonce) || len(salt) == 0 || rounds < 4096 {
		return "", fmt.Errorf("%w: unfit challenge", errScram)
	}
	salted, err := pbkdf2.Key(s.hash, s.password, salt, rounds, s.hash().Size())
	if err != nil {
		return "", fmt.Errorf("%w: %w", errScram, err)
	}
	last := "c=biws,r=" + nonce
	message := s.first + "," + challenge + "," + last
	client := s.mac(salted, "Client Key")
	digest := s.hash()
	digest.Write(client)
	signature := s.mac(digest.Sum(nil), message)
	for i := range client {
		client[i] ^= signature[i]
	}
	s.server = s.mac(s.mac(salted, "Server Key"), message)
	return last + ",p=" + base64.StdEncoding.EncodeToString(client), nil
}

func (s *scram) mac(key []byte, text string) []byte {
	m := hmac.New(s.hash, key)
	m.Write([]byte(text))
	return m.Sum(nil)
}
