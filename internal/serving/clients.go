package serving

// This file decides which clients are allowed: those whose certificate has an allowed name and was issued by a CA that
// is trusted for clients. It caches the decisions. It also reads those CAs, and follows their changes.

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/cluster"
	"code.cloudfoundry.org/eirinix/internal/lograte"
	"code.cloudfoundry.org/eirinix/internal/wait"
)

const (
	// maxDecisions limits the cached decisions of each kind. A cluster has a handful of API servers. Above the limit, the
	// cache starts empty again, and each client is verified once more.
	maxDecisions = 128

	// refusalLife is how long a refusal is cached. Clocks are corrected, and certificates become valid.
	refusalLife = 10 * time.Second
)

// The reasons why a client is refused, and why a bundle of client CAs is rejected. Errors of Check and SetCAs wrap one
// of these, except those of SetCAs about a truncated bundle.
var (
	ErrNoClientCertificate = errors.New("no client certificate")
	ErrClientRefused       = errors.New("the client certificate is not accepted")
	ErrNoClientCA          = errors.New("no readable CA certificate")
)

// Clients decides by client certificate which clients are allowed. Until the first SetCAs, no client is.
//
// Set the fields before the first use. The methods are safe for concurrent use.
type Clients struct {
	// Names are the allowed names. One of them must equal the certificate's common name or one of its DNS names
	// exactly. Empty allows any name that the CAs have certified.
	Names []string

	Now func() time.Time // nil means time.Now

	setting sync.Mutex // one SetCAs at a time
	current atomic.Pointer[trust]
}

// trust is one generation of CAs with the decisions that were made under it, so that a change of CAs discards every
// decision.
type trust struct {
	bundle []byte // as passed to SetCAs
	roots  *x509.CertPool
	seen   decisions
}

// SetCAs replaces the CAs that verify clients by the CA certificates of a bundle (PEM). They apply from the next
// request on, also on open connections. A bundle without a readable CA certificate is an error that wraps
// ErrNoClientCA. One that ends within a block (a file that is being written) is an error too. After an error the last
// good bundle stays in effect. Certificates that are not CA certificates are ignored: to allow individual clients of a
// CA, use Names. SetCAs copies the bundle, and does nothing if the same one is passed again.
func (c *Clients) SetCAs(bundle []byte) error {
	c.setting.Lock()
	defer c.setting.Unlock()
	if last := c.current.Load(); last != nil && bytes.Equal(last.bundle, bundle) {
		return nil
	}
	if cutOff(bundle) {
		return errors.New("the bundle of client CAs ends within a PEM block; is it complete?")
	}
	next := &trust{bundle: bytes.Clone(bundle), roots: x509.NewCertPool()}
	found := 0
	for _, certificate := range ca.SplitBundle(bundle) {
		if certificate.BasicConstraintsValid && certificate.IsCA {
			next.roots.AddCert(certificate)
			found++
		}
	}
	if found == 0 {
		return fmt.Errorf("%w in the bundle of client CAs", ErrNoClientCA)
	}
	c.current.Store(next)
	return nil
}

// cutOff reports whether the last block of a PEM text has no end.
func cutOff(text []byte) bool {
	begin := bytes.LastIndex(text, []byte("-----BEGIN "))
	return begin >= 0 && !bytes.Contains(text[begin:], []byte("-----END "))
}

// Check returns nil if the client of this connection is allowed now, and otherwise an error that wraps
// ErrNoClientCertificate or ErrClientRefused. It verifies an accepted chain once, and again when the CAs change or a
// certificate of the chain expires. A refusal is kept for refusalLife. In between, Check takes no lock and allocates
// nothing.
func (c *Clients) Check(connection *tls.ConnectionState) error {
	if connection == nil || len(connection.PeerCertificates) == 0 {
		return ErrNoClientCertificate
	}
	t := c.current.Load()
	if t == nil {
		return fmt.Errorf("%w: the client CAs have not been read yet", ErrClientRefused)
	}
	now := c.now()
	key := keyOf(connection.PeerCertificates)
	if known := t.seen.get(key, now); known != nil {
		return known.err
	}
	result := t.judge(connection.PeerCertificates, c.Names, now)
	t.seen.put(key, result)
	return result.err
}

// Expected describes the certificate that a client needs to be accepted.
func (c *Clients) Expected() string {
	names := "any name"
	if len(c.Names) > 0 {
		names = fmt.Sprintf("one of the names %q", c.Names)
	}
	return "a certificate for client authentication, issued by a CA in ManagerOptions.ClientCA, for " + names
}

func (c *Clients) now() time.Time {
	if c.Now == nil {
		return time.Now()
	}
	return c.Now()
}

// judge verifies a client's chain. Its first certificate is the client's own.
func (t *trust) judge(chain []*x509.Certificate, names []string, now time.Time) *decision {
	client := chain[0]
	chains, err := client.Verify(x509.VerifyOptions{
		Roots: t.roots, Intermediates: ca.Pool(chain[1:]...), CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return refused(now, "%.200q, issued by %.200q: %v", client.Subject, client.Issuer, err)
	}
	if !allowed(client, names) {
		return refused(now, "%.200q with DNS names %.200q is not a name that may call", client.Subject, fmt.Sprint(client.DNSNames))
	}
	return &decision{from: now.Round(0), until: longest(chains)}
}

func allowed(client *x509.Certificate, names []string) bool {
	return len(names) == 0 || slices.Contains(names, client.Subject.CommonName) ||
		slices.ContainsFunc(client.DNSNames, func(name string) bool { return slices.Contains(names, name) })
}

// longest returns the end of the chain that stays valid for longest. A chain ends with the first of its certificates to
// expire.
func longest(chains [][]*x509.Certificate) time.Time {
	var last time.Time
	for _, chain := range chains {
		first := slices.MinFunc(chain, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) })
		if first.NotAfter.After(last) {
			last = first.NotAfter
		}
	}
	return last
}

// A decision holds in [from, until). Both bounds are wall clock times.
type decision struct {
	err         error // nil: accepted
	from, until time.Time
}

// refused returns a decision with its reason. The reason is limited to 1000 characters and quoted, because an unknown
// client wrote much of it.
func refused(now time.Time, format string, args ...any) *decision {
	reason := fmt.Sprintf(format, args...)
	now = now.Round(0)
	return &decision{err: fmt.Errorf("%w: %.1000s", ErrClientRefused, reason), from: now, until: now.Add(refusalLife)}
}

// chainKey identifies the certificates that a client has sent, in their order.
type chainKey [sha256.Size]byte

// keyOf returns the key of a chain and allocates nothing. Intermediates are included, because the decision can depend on
// them.
func keyOf(chain []*x509.Certificate) chainKey {
	key := chainKey(sha256.Sum256(chain[0].Raw))
	for _, certificate := range chain[1:] {
		var pair [2 * sha256.Size]byte
		next := sha256.Sum256(certificate.Raw)
		copy(pair[:], key[:])
		copy(pair[sha256.Size:], next[:])
		key = sha256.Sum256(pair[:])
	}
	return key
}

// decisions is a bounded cache that is read without a lock. Refusals are stored separately, so that unknown clients
// cannot evict the API server's decision. The zero value is empty.
type decisions struct {
	accepted, refused atomic.Pointer[map[chainKey]*decision]
	writing           sync.Mutex
}

// get returns the decision that is valid now, or nil.
func (m *decisions) get(key chainKey, now time.Time) *decision {
	for _, kind := range [...]*atomic.Pointer[map[chainKey]*decision]{&m.accepted, &m.refused} {
		if known := kind.Load(); known != nil {
			if v := (*known)[key]; v != nil && !now.Before(v.from) && now.Before(v.until) {
				return v
			}
		}
	}
	return nil
}

func (m *decisions) put(key chainKey, v *decision) {
	kind := &m.accepted
	if v.err != nil {
		kind = &m.refused
	}
	m.writing.Lock()
	defer m.writing.Unlock()
	next := map[chainKey]*decision{}
	if last := kind.Load(); last != nil && len(*last) < maxDecisions {
		next = maps.Clone(*last)
	}
	next[key] = v
	kind.Store(&next)
}

// filePoll is the interval at which a file is read. Comparing its content, instead of waiting for notifications,
// handles a mounted ConfigMap's exchange of symbolic links, network file systems and renamed files alike.
const filePoll = 5 * time.Second

// ClientCAs keeps Clients up to date from one of PEM, File and ConfigMap. Errors name the option of the Manager.
type ClientCAs struct {
	Clients   *Clients
	PEM       []byte
	File      string // of at most 1 MiB
	ConfigMap types.NamespacedName
	Key       string           // of the ConfigMap's data
	Objects   *cluster.Objects // follow the ConfigMap, beside others: a right that comes back is one for all
	Log       logr.Logger
}

// ParseConfigMap parses "namespace/name" or "namespace/name/key". The default key is ca.crt.
func ParseConfigMap(text string) (name types.NamespacedName, key string, err error) {
	parts := append(strings.Split(text, "/"), "ca.crt")
	if len(parts) > 4 || len(parts) < 3 || slices.Contains(parts, "") {
		return name, "", errors.New("not of this form")
	}
	return types.NamespacedName{Namespace: parts[0], Name: parts[1]}, parts[2], nil
}

// Empty returns the ConfigMap before its first read: only namespace and name are set.
func (c *ClientCAs) Empty() *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: c.ConfigMap.Namespace, Name: c.ConfigMap.Name}}
}

// Read reads the CAs once. Without any, no client is allowed, so a start without them is an error. If they come from a
// ConfigMap, its Objects must be running.
func (c *ClientCAs) Read(ctx context.Context) error {
	if c.Objects != nil {
		if err := c.Objects.Seen(ctx); err != nil {
			return err
		}
	}
	return c.read(ctx)
}

// read sets the CAs. After an error the last good ones stay in effect.
func (c *ClientCAs) read(ctx context.Context) error {
	text, failed, err := c.PEM, "PEM cannot be used", error(nil)
	switch {
	case len(c.PEM) > 0:
	case c.File != "":
		failed = fmt.Sprintf("File %s cannot be used; mount it, or name another", c.File)
		if text, err = ca.ReadFile(c.File); len(text) > ca.MaxFile {
			err = fmt.Errorf("it is larger than %d bytes", ca.MaxFile)
		}
	default:
		failed = fmt.Sprintf("ConfigMap %s cannot be used (needs get, list and watch on that ConfigMap)", c.ConfigMap)
		text, err = c.readConfigMap(ctx)
	}
	if err == nil {
		err = c.Clients.SetCAs(text)
	}
	if err != nil {
		return fmt.Errorf("eirinix: ManagerOptions.ClientCA.%s: %w", failed, err)
	}
	return nil
}

func (c *ClientCAs) readConfigMap(ctx context.Context) ([]byte, error) {
	found := c.Empty()
	if err := c.Objects.Get(ctx, found); err != nil {
		return nil, err
	}
	text, ok := found.Data[c.Key]
	if !ok {
		return nil, fmt.Errorf("it has no key %q", c.Key)
	}
	return []byte(text), nil
}

// Follow applies changes until ctx ends: those of a file within five seconds, in a goroutine of run. It logs each change. It also
// logs when the CAs cannot be read, while the last good ones stay in effect.
func (c *ClientCAs) Follow(ctx context.Context, run func(func())) {
	var failures lograte.Limiter
	read := func() {
		const failed = "the client CAs could not be read; the last good ones stay"
		before := c.Clients.current.Load()
		switch err := c.read(ctx); {
		case err != nil && ctx.Err() == nil:
			failures.Info(c.Log, failed, err.Error())
		case err == nil:
			failures.Forget(failed)
			if c.Clients.current.Load() != before {
				c.Log.Info("client CAs read")
			}
		}
	}
	switch {
	case c.File != "":
		run(func() {
			for ctx.Err() == nil {
				read()
				_ = wait.Sleep(ctx, filePoll)
			}
		})
	case c.Objects != nil:
		c.Objects.Notify(read)
	}
}
