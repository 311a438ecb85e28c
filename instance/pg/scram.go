package pg

import (
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/text/secure/precis"
)

// scramIterations is PostgreSQL's own default.
const scramIterations = 4096

// scramVerifier is what PostgreSQL stores for a password (RFC 5802, 7677), made here so that the password itself is
// never part of a statement, which may end in a log.
func scramVerifier(password string) (string, error) {
	salt := make([]byte, 16)
	if _, err := rand.Read(salt); err != nil {
		return "", err
	}
	return scramVerifierWith(password, salt, scramIterations)
}

func scramVerifierWith(password string, salt []byte, iterations int) (string, error) {
	salted, err := pbkdf2.Key(sha256.New, normalise(password), salt, iterations, sha256.Size)
	if err != nil {
		return "", err
	}
	stored := sha256.Sum256(keyed(salted, "Client Key"))
	server := keyed(salted, "Server Key")
	encode := base64.StdEncoding.EncodeToString
	return fmt.Sprintf("SCRAM-SHA-256$%d:%s$%s:%s", iterations, encode(salt), encode(stored[:]), encode(server)), nil
}

func keyed(key []byte, message string) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(message))
	return mac.Sum(nil)
}

// normalise is what clients do with a password; one that cannot be normalised is used as it is, as PostgreSQL does.
func normalise(password string) string {
	if prepared, err := precis.OpaqueString.String(password); err == nil {
		return prepared
	}
	return password
}

// matchesVerifier tells whether a stored verifier is of a password.
func matchesVerifier(password, verifier string) bool {
	salt, iterations, err := parseVerifier(verifier)
	if err != nil {
		return false
	}
	expected, err := scramVerifierWith(password, salt, iterations)
	return err == nil && hmac.Equal([]byte(expected), []byte(verifier))
}

func parseVerifier(verifier string) (salt []byte, iterations int, err error) {
	parts := strings.Split(verifier, "$")
	if len(parts) != 3 || parts[0] != "SCRAM-SHA-256" {
		return nil, 0, errors.New("not a SCRAM verifier")
	}
	count, encoded, found := strings.Cut(parts[1], ":")
	if !found {
		return nil, 0, errors.New("not a SCRAM verifier")
	}
	if iterations, err = strconv.Atoi(count); err != nil {
		return nil, 0, err
	}
	salt, err = base64.StdEncoding.DecodeString(encoded)
	return salt, iterations, err
}
