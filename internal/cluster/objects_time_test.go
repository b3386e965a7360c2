package cluster_test

// Objects in synctest's time, before an API server of a few lines.

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"code.cloudfoundry.org/eirinix/internal/cluster"
)

// shelf is an API server that holds Secrets named one, by namespace. Verbs that are not granted are answered 403.
type shelf struct {
	slow    bool // each get and watch takes two seconds
	mu      sync.Mutex
	version int                     // of the last change
	held    map[string]int          // versions by namespace
	granted string                  // verbs
	streams map[chan string]watcher // of watches that last
}

// watcher is a client that watches a namespace, for changes after a version.
type watcher struct {
	namespace string
	after     int
}

func newShelf(granted string) *shelf {
	return &shelf{slow: strings.Contains(granted, "slowly"), granted: granted, version: 7, held: map[string]int{"cf": 7, "other": 5}, streams: map[chan string]watcher{}}
}

func (s *shelf) grant(verbs string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.granted = verbs
}

// put changes a Secret. A version of 0 deletes it.
func (s *shelf) put(namespace string) int { return s.change(namespace, "MODIFIED") }

func (s *shelf) remove(namespace string) { s.change(namespace, "DELETED") }

func (s *shelf) change(namespace, event string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	s.held[namespace] = s.version
	line := fmt.Sprintf(`{"type":%q,"object":%s}`, event, secretText(namespace, s.version))
	if event == "DELETED" {
		delete(s.held, namespace)
	}
	for stream, of := range s.streams {
		if of.namespace == namespace && s.version > of.after {
			stream <- line + "\n"
		}
	}
	return s.version
}

// restore puts an older state in place of all objects, as a backup of etcd does.
func (s *shelf) restore(held map[string]int, version int) {
	s.hangUp()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held, s.version = map[string]int{}, version
	maps.Copy(s.held, held)
}

// hangUp ends all watches, as a server does that goes down.
func (s *shelf) hangUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for stream := range s.streams {
		close(stream)
		delete(s.streams, stream)
	}
}

// status is an answer that refuses a request.
func status(code int, reason, message string) *http.Response {
	return reply(code, fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d,"message":%q}`, reason, code, message))
}

func secretText(namespace string, version int) string {
	return fmt.Sprintf(`{"kind":"Secret","apiVersion":"v1","metadata":{"name":"one","namespace":%q,"uid":%q,"resourceVersion":"%d"}}`, namespace, namespace, version)
}

func (s *shelf) answer(r *http.Request) (*http.Response, error) {
	q := r.URL.Query()
	verb := "list"
	switch {
	case q.Get("watch") == "true":
		verb = "watch"
	case strings.HasSuffix(r.URL.Path, "/one"):
		verb = "get"
	}
	if s.slow && verb != "list" {
		time.Sleep(2 * time.Second)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	namespace := strings.Split(r.URL.Path, "/")[4]
	if !strings.Contains(s.granted, verb) {
		return status(http.StatusForbidden, "Forbidden", verb+" is not granted"), nil
	}
	version, found := s.held[namespace]
	after, _ := strconv.Atoi(q.Get("resourceVersion"))
	switch {
	case after > s.version && (verb == "list" || q.Get("sendInitialEvents") == "true"):
		return reply(http.StatusGatewayTimeout, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Timeout","code":504,"message":"Too large resource version","details":{"causes":[{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}]}}`), nil
	case verb == "list" && found:
		return reply(http.StatusOK, fmt.Sprintf(`{"kind":"SecretList","apiVersion":"v1","metadata":{"resourceVersion":"%d"},"items":[%s]}`, s.version, secretText(namespace, version))), nil
	case verb == "list":
		return reply(http.StatusOK, fmt.Sprintf(`{"kind":"SecretList","apiVersion":"v1","metadata":{"resourceVersion":"%d"},"items":[]}`, s.version)), nil
	case verb == "get" && found:
		return reply(http.StatusOK, secretText(namespace, version)), nil
	case verb == "get":
		return status(http.StatusNotFound, "NotFound", "gone"), nil
	}
	if q.Get("sendInitialEvents") == "true" && !strings.Contains(s.granted, "list") {
		return status(http.StatusForbidden, "Forbidden", "list is not granted"), nil
	}
	stream := make(chan string, 100)
	if q.Get("sendInitialEvents") == "true" {
		if found {
			stream <- fmt.Sprintf(`{"type":"ADDED","object":%s}`, secretText(namespace, version)) + "\n"
		}
		stream <- fmt.Sprintf(`{"type":"BOOKMARK","object":{"kind":"Secret","apiVersion":"v1","metadata":{"resourceVersion":"%d","annotations":{"k8s.io/initial-events-end":"true"}}}}`, s.version) + "\n"
	}
	s.streams[stream] = watcher{namespace, after}
	resp := reply(http.StatusOK, "")
	var rest string
	resp.Body = body(func(p []byte) (int, error) {
		if rest == "" {
			select {
			case line, open := <-stream:
				if !open {
					return 0, io.EOF
				}
				rest = line
			case <-r.Context().Done():
				return 0, r.Context().Err()
			}
		}
		n := copy(p, rest)
		rest = rest[n:]
		return n, nil
	})
	return resp, nil
}

func secretOf(namespace string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "one"}}
}

// rights are those that a process is told of, and how often it asked.
type rights struct {
	mu    sync.Mutex
	has   cluster.Access
	asked []time.Time
}

func (r *rights) set(has cluster.Access) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.has = has
}

func (r *rights) access(context.Context) (cluster.Access, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = append(r.asked, time.Now())
	return r.has, nil
}

// followed is a process that follows the Secret in each of the namespaces.
type followed struct {
	*cluster.Objects
	*wire
	*shelf
	*rights
	api      *cluster.API
	notified atomic.Int64
	logMu    sync.Mutex
	lines    []string
	end      func()
}

// said returns the lines of the log with that text.
func (f *followed) said(text string) (lines []string) {
	f.logMu.Lock()
	defer f.logMu.Unlock()
	for _, line := range f.lines {
		if strings.Contains(line, text) {
			lines = append(lines, line)
		}
	}
	return lines
}

// asking is how many requests had that in their URI.
func (f *followed) asking(part string) (n int) {
	for _, s := range f.since(time.Time{}) {
		if strings.Contains(s.uri, part) {
			n++
		}
	}
	return n
}

func (f *followed) logged() int { return len(f.said("may not be watched")) }

// version is that of the copy in a namespace, empty for none.
func (f *followed) versionIn(ctx context.Context, namespace string) (string, error) {
	secret := secretOf(namespace)
	err := f.Get(ctx, secret)
	return secret.ResourceVersion, err
}

// Seen does not wait for ever, as time in a bubble passes.
func (f *followed) Seen(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	return f.Objects.Seen(ctx)
}

func (f *followed) copied(ctx context.Context) (string, error) { return f.versionIn(ctx, "cf") }

// following runs f in a bubble. The API server grants the verbs in granted; the process is told that it has the access in has.
func following(t *testing.T, granted string, has cluster.Access, namespaces []string, f func(g Gomega, ctx context.Context, p *followed)) {
	followingAt(t, nil, granted, has, namespaces, f)
}

// needed is an object that the process waits for, and whose rights it does not ask for.
func needed(f *cluster.Followed) { f.Access, f.Needed = nil, true }

// followingAt has another server answer from the beginning.
func followingAt(t *testing.T, server server, granted string, has cluster.Access, namespaces []string, f func(g Gomega, ctx context.Context, p *followed), changes ...func(*cluster.Followed)) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		p := &followed{wire: &wire{}, shelf: newShelf(granted), rights: &rights{has: has}, api: &cluster.API{}}
		p.answers(p.shelf.answer)
		if server != nil {
			p.answers(server)
		}
		log := funcr.New(func(_, line string) {
			p.logMu.Lock()
			defer p.logMu.Unlock()
			p.lines = append(p.lines, line)
		}, funcr.Options{})
		config := &rest.Config{Host: "https://api.example.org", Transport: p.wire, QPS: -1}
		config.Wrap(p.api.Wrap)
		var all []cluster.Followed
		for _, ns := range namespaces {
			one := cluster.Followed{Object: secretOf(ns), Access: p.access}
			for _, change := range changes {
				change(&one)
			}
			all = append(all, one)
		}
		var err error
		p.Objects, err = cluster.NewObjects(config, log, all...)
		g.Expect(err).NotTo(HaveOccurred())
		p.Notify(func() { p.notified.Add(1) })
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { p.Run(ctx) })
		p.end = func() {
			cancel()
			running.Wait()
		}
		defer p.end()
		f(g, ctx, p)
		start := time.Now()
		p.end()
		g.Expect(time.Since(start)).To(BeNumerically("<", time.Second), "Run ends with its context")
		settle(2 * time.Minute) // for a reflector that backs off; then the bubble looks for goroutines that are left
	})
}

func settle(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

var (
	all     = cluster.Access{Get: true, Watch: true}
	getOnly = cluster.Access{Get: true}
	inCF    = []string{"cf"}
)

func TestAWatchedObjectIsKeptUpToDate(t *testing.T) {
	following(t, "get list watch", all, inCF, func(g Gomega, ctx context.Context, p *followed) {
		start := time.Now()
		g.Expect(p.Seen(ctx)).To(Succeed())
		g.Expect(time.Since(start)).To(BeZero(), "a start does not wait for a poll")
		synctest.Wait()
		g.Expect(p.copied(ctx)).To(Equal("7"))
		settle(4 * time.Minute)
		g.Expect(p.since(time.Time{})).To(HaveLen(1), "no request but the watch")
		before := p.notified.Load()
		p.put("cf")
		settle(0)
		g.Expect(p.copied(ctx)).To(Equal("8"))
		g.Expect(p.notified.Load()).To(BeNumerically(">", before))
		p.shelf.mu.Lock()
		for stream := range p.shelf.streams {
			stream <- strings.Replace(`{"type":"MODIFIED","object":`+secretText("cf", 9)+"}\n", "Secret", "Pod", 1)
		}
		p.shelf.mu.Unlock()
		settle(0)
		g.Expect(p.copied(ctx)).To(Equal("8"), "an object of another kind is not taken")
		before = p.notified.Load()
		p.remove("cf")
		settle(0)
		_, err := p.copied(ctx)
		g.Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
		g.Expect(p.notified.Load()).To(BeNumerically(">", before))
		for range 9 { // a proxy ends each watch so early
			settle(40 * time.Second)
			start = time.Now()
			p.shelf.hangUp()
		}
		settle(2 * time.Second)
		g.Expect(p.since(start)).To(HaveLen(1), "the next one begins within seconds")
	})
}

func TestWatchesThatAreCutTogetherBeginAnewAtRandom(t *testing.T) {
	var namespaces []string
	for i := range 40 { // as many as ten replicas have
		namespaces = append(namespaces, fmt.Sprintf("ns-%d", i))
	}
	following(t, "get list watch", all, namespaces, func(g Gomega, _ context.Context, p *followed) {
		settle(4 * time.Minute)
		began := time.Now()
		p.shelf.hangUp()
		settle(time.Minute)
		again := p.since(began)
		g.Expect(again).To(HaveLen(len(namespaces)), "one request for each watch")
		g.Expect(again[len(again)-1].at.Sub(began)).To(And(BeNumerically(">", 2*time.Second), BeNumerically("<=", 3*time.Second)))
		for i := range len(again) - 20 {
			g.Expect(again[i+20].at.Sub(again[i].at)).To(BeNumerically(">", 500*time.Millisecond), "no crowd")
		}
		g.Expect(p.api.SilentUntil()).To(BeZero(), "it was no outage")
	})
}

func TestAWatchThatEndsAsAgreedBeginsAnewAtOnce(t *testing.T) {
	following(t, "get list watch", all, []string{"cf"}, func(g Gomega, _ context.Context, p *followed) {
		var latest atomic.Int64
		p.answers(func(r *http.Request) (*http.Response, error) {
			if seconds, err := strconv.Atoi(r.URL.Query().Get("timeoutSeconds")); err == nil {
				n := latest.Add(1)
				time.AfterFunc(time.Duration(seconds)*time.Second, func() {
					if latest.Load() == n {
						p.shelf.hangUp()
					}
				})
			}
			return p.shelf.answer(r)
		})
		settle(4 * time.Minute)
		began := time.Now()
		p.shelf.hangUp()
		settle(time.Hour)
		watches := p.since(began)
		g.Expect(len(watches)).To(BeNumerically(">", 5))
		for i := range watches[1:] {
			g.Expect(watches[i+1].at.Sub(watches[i].at)%time.Second).To(BeZero(), "a watch lasts whole seconds, and nothing is between two")
		}
	})
}

func TestAWatchThatGoesOnForEverIsGivenUp(t *testing.T) {
	following(t, "get list watch", all, inCF, func(g Gomega, ctx context.Context, p *followed) {
		settle(11 * time.Minute) // a proxy can keep open a connection that is long dead
		watches := p.since(time.Time{})
		g.Expect(watches).To(HaveLen(2))
		uri, err := url.Parse(watches[0].uri)
		g.Expect(err).NotTo(HaveOccurred())
		agreed, err := time.ParseDuration(uri.Query().Get("timeoutSeconds") + "s")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(watches[1].at.Sub(watches[0].at) - agreed).To(And(BeNumerically(">=", 20*time.Second), BeNumerically("<=", 25*time.Second)))
		p.put("cf")
		settle(0)
		g.Expect(p.copied(ctx)).To(Equal("8"))
	})
}

func TestAnObjectThatMayOnlyBeReadIsPolled(t *testing.T) {
	following(t, "get", getOnly, inCF, func(g Gomega, ctx context.Context, p *followed) {
		g.Expect(p.Seen(ctx)).To(Succeed())
		g.Expect(p.copied(ctx)).To(Equal("7"))
		ladder := func(last time.Time, reads []sent) {
			interval := time.Second
			for _, read := range reads {
				g.Expect(read.at.Sub(last)).To(And(BeNumerically(">=", interval), BeNumerically("<=", interval+interval/5)), "doubling from 1 s to 30 s")
				last, interval = read.at, min(2*interval, 30*time.Second)
			}
		}
		settle(4 * time.Minute)
		reads := p.since(time.Time{})
		g.Expect(len(reads)).To(And(BeNumerically(">=", 11), BeNumerically("<=", 13)))
		ladder(reads[0].at, reads[1:])
		before := p.notified.Load()
		g.Expect(before).To(BeEquivalentTo(1), "an unchanged object is no news")
		p.put("cf")
		p.forget()
		settle(3 * time.Minute)
		g.Expect(p.copied(ctx)).To(Equal("8"))
		g.Expect(p.notified.Load()).To(Equal(before + 1))
		reads = p.since(time.Time{})
		ladder(reads[0].at, reads[1:])
		p.remove("cf")
		settle(40 * time.Second)
		_, err := p.copied(ctx)
		g.Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
		g.Expect(p.notified.Load()).To(Equal(before + 2))
		p.put("cf")
		settle(40 * time.Second)
		p.answers(always(http.StatusInternalServerError, "{}"))
		settle(5 * time.Minute)
		g.Expect(p.copied(ctx)).To(Equal("10"), "the last copy stays while reading fails")
	})
}

func TestAWriteHasAPolledCopyReadAgain(t *testing.T) {
	following(t, "get", getOnly, inCF, func(g Gomega, ctx context.Context, p *followed) {
		g.Expect(p.Seen(ctx)).To(Succeed())
		settle(2 * time.Minute)
		g.Expect(p.Polls(secretOf("cf"))).To(BeTrue())
		p.put("cf")
		p.forget()
		p.Answered(secretOf("other")) // is not followed
		p.Answered(secretOf("cf"))
		synctest.Wait()
		g.Expect(p.copied(ctx)).To(Equal("8"))
		g.Expect(p.since(time.Time{})).To(HaveLen(1))
		p.answers(func(r *http.Request) (*http.Response, error) {
			resp, err := p.shelf.answer(r) // as the object is now
			time.Sleep(5 * time.Second)
			return resp, err
		})
		settle(3 * time.Second) // a reading is under way
		p.put("cf")
		p.Answered(secretOf("cf"))
		settle(10 * time.Second)
		g.Expect(p.copied(ctx)).To(Equal("9"), "it is read once more after that")
		p.answers(p.shelf.answer)
		settle(5 * time.Second)
	})
	following(t, "get list watch", all, inCF, func(g Gomega, ctx context.Context, p *followed) {
		g.Expect(p.Seen(ctx)).To(Succeed())
		p.forget()
		p.Answered(secretOf("cf"))
		settle(time.Minute)
		g.Expect(p.Polls(secretOf("cf"))).To(BeFalse())
		g.Expect(p.since(time.Time{})).To(BeEmpty())
	})
}

func TestAnObjectThatMayNotBeReadCausesNoRequest(t *testing.T) {
	following(t, "get list watch", cluster.Access{}, inCF, func(g Gomega, ctx context.Context, p *followed) {
		g.Expect(p.Seen(ctx)).To(Succeed())
		_, err := p.copied(ctx)
		g.Expect(err).To(MatchError(cluster.ErrUnseen))
		settle(time.Hour)
		g.Expect(p.since(time.Time{})).To(BeEmpty())
		g.Expect(len(p.asked)).To(And(BeNumerically(">=", 5), BeNumerically("<=", 7)), "its rights are asked for every ten minutes")
		_, err = p.copied(ctx)
		g.Expect(err).To(MatchError(cluster.ErrUnseen))
		before := p.notified.Load()
		p.rights.set(all)
		settle(12 * time.Minute)
		g.Expect(p.copied(ctx)).To(Equal("7"), "rights that were granted later are taken up")
		g.Expect(p.notified.Load()).To(BeNumerically(">", before))
	})
}

func TestARightThatIsGivenBackIsTakenUpWithTheNextOneThatIs(t *testing.T) {
	following(t, "get list watch", cluster.Access{}, []string{"cf", "other"}, func(g Gomega, ctx context.Context, p *followed) {
		g.Expect(p.Seen(ctx)).To(Succeed())
		settle(time.Minute)
		p.rights.set(all)
		settle(time.Minute)
		_, err := p.versionIn(ctx, "other")
		g.Expect(err).To(MatchError(cluster.ErrUnseen), "nothing tells that it was given back")
		_, err = p.versionIn(ctx, "third")
		g.Expect(err).To(MatchError(cluster.ErrUnseen), "it is not followed")
		p.Retry() // something else was, which is noticed at once
		settle(time.Second)
		g.Expect(p.versionIn(ctx, "cf")).To(Equal("7"))
		g.Expect(p.versionIn(ctx, "other")).To(Equal("5"))
	})
	following(t, "get list watch", cluster.Access{}, []string{"cf", "other"}, func(g Gomega, ctx context.Context, p *followed) {
		g.Expect(p.Seen(ctx)).To(Succeed())
		p.rights.set(all)
		for _, err := p.versionIn(ctx, "cf"); err != nil; _, err = p.versionIn(ctx, "cf") {
			if _, err := p.versionIn(ctx, "other"); err == nil {
				break
			}
			settle(100 * time.Millisecond)
		}
		settle(time.Second) // the first of them makes the other be looked at
		g.Expect(p.versionIn(ctx, "cf")).To(Equal("7"))
		g.Expect(p.versionIn(ctx, "other")).To(Equal("5"))
	})
	following(t, "get list watch", getOnly, inCF, func(g Gomega, ctx context.Context, p *followed) {
		g.Expect(p.Seen(ctx)).To(Succeed())
		p.rights.set(all)
		p.Retry()
		settle(time.Second)
		g.Expect(p.Polls(secretOf("cf"))).To(BeFalse(), "a watch is tried again")
	})
}

func TestARefusalIsToldWithItsReasonAndTriedAgainAfterTenMinutes(t *testing.T) {
	following(t, "", getOnly, inCF, func(g Gomega, ctx context.Context, p *followed) {
		g.Expect(p.Seen(ctx)).To(Succeed())
		settle(time.Hour)
		_, err := p.copied(ctx)
		g.Expect(err).To(And(MatchError(cluster.ErrUnseen), Satisfy(apierrors.IsForbidden), MatchError(ContainSubstring("get is not granted"))))
		g.Expect(p.notified.Load()).To(BeEquivalentTo(1), "once")
		g.Expect(len(p.since(time.Time{}))).To(BeNumerically("<=", 7))
		p.shelf.grant("get")
		settle(12 * time.Minute)
		g.Expect(p.copied(ctx)).To(Equal("7"))
	})
}

func TestAReadingThatFailsIsToldWithItsReason(t *testing.T) {
	for name, has := range map[string]cluster.Access{"of a watch": all, "of a reading": getOnly} {
		t.Run(name, func(t *testing.T) {
			slow := func(*http.Request) (*http.Response, error) {
				time.Sleep(time.Second)
				return status(http.StatusInternalServerError, "InternalError", "etcd is down"), nil
			}
			followingAt(t, slow, "get list watch", has, inCF, func(g Gomega, ctx context.Context, p *followed) {
				_, err := p.copied(ctx)
				g.Expect(err).To(And(MatchError(cluster.ErrUnseen), MatchError(ContainSubstring("the API server has not sent it yet"))))
				settle(10 * time.Second)
				_, err = p.copied(ctx)
				g.Expect(err).To(And(MatchError(cluster.ErrUnseen), Satisfy(apierrors.IsInternalError), MatchError(ContainSubstring("etcd is down"))))
				g.Expect(p.notified.Load()).To(BeEquivalentTo(1))
				g.Expect(p.said("cannot be read")).To(ConsistOf(And(ContainSubstring(`"kind"="Secret"`), ContainSubstring(`"name"="one"`), ContainSubstring("etcd is down"))), "at once, and not again")
				settle(5 * time.Minute)
				g.Expect(len(p.said("cannot be read"))).To(And(BeNumerically(">=", 4), BeNumerically("<=", 6)), "once a minute")
				g.Expect(len(p.since(time.Time{}))).To(BeNumerically("<", 40), "less and less often")
				p.answers(func(*http.Request) (*http.Response, error) {
					return status(http.StatusNotFound, "NotFound", "no such kind"), nil
				})
				if has == all {
					settle(2 * time.Minute)
					_, err = p.copied(ctx)
					g.Expect(err).To(And(MatchError(cluster.ErrUnseen), Not(Satisfy(apierrors.IsNotFound)), MatchError(ContainSubstring("no such kind"))))
				}
				before := p.notified.Load()
				p.answers(p.shelf.answer)
				settle(2 * time.Minute)
				g.Expect(p.copied(ctx)).To(Equal("7"))
				g.Expect(p.notified.Load()).To(BeNumerically(">", before))
			})
		})
	}
}

func TestAnObjectThatIsNeededIsTriedForSooner(t *testing.T) {
	for name, granted := range map[string]string{"reading": "get", "watching": "list watch"} {
		t.Run(name+" is granted late", func(t *testing.T) {
			followingAt(t, nil, "", cluster.Access{}, inCF, func(g Gomega, ctx context.Context, p *followed) {
				g.Expect(p.Seen(ctx)).To(Succeed())
				settle(time.Hour)
				_, err := p.copied(ctx)
				g.Expect(err).To(And(MatchError(cluster.ErrUnseen), Satisfy(apierrors.IsForbidden)))
				g.Expect(len(p.since(time.Time{}))).To(BeNumerically("<=", 3*(120+5)), "half a minute between two tries")
				g.Expect(p.logged()).To(Equal(1), "said once")
				p.shelf.grant(granted)
				settle(40 * time.Second)
				g.Expect(p.copied(ctx)).To(Equal("7"))
				g.Expect(p.asked).To(BeEmpty())
			}, needed)
		})
	}
}

func TestAWatchIsTriedAgainEveryTenMinutes(t *testing.T) {
	followingAt(t, nil, "get", cluster.Access{}, inCF, func(g Gomega, ctx context.Context, p *followed) {
		settle(2*time.Hour - time.Minute)
		g.Expect(p.asking("sendInitialEvents")).To(And(BeNumerically(">=", 10), BeNumerically("<=", 12)))
		g.Expect(p.logged()).To(Equal(1), "said once")
		p.shelf.grant("get list watch")
		settle(11 * time.Minute)
		p.shelf.grant("get")
		p.hangUp()
		settle(time.Minute)
		g.Expect(p.logged()).To(Equal(2), "and once more after it was allowed")
	}, needed)
}

func TestAWatchThatIsRefusedBecomesPolling(t *testing.T) {
	for name, granted := range map[string]string{"from its list on": "get", "after its list": "get list slowly"} {
		t.Run(name, func(t *testing.T) {
			following(t, granted, all, inCF, func(g Gomega, ctx context.Context, p *followed) {
				g.Expect(p.Seen(ctx)).To(Succeed())
				for range 1000 {
					g.Expect(p.copied(ctx)).To(Equal("7"), "it is known without a gap")
					settle(5 * time.Millisecond)
				}
				p.put("cf")
				settle(9 * time.Minute)
				g.Expect(p.copied(ctx)).To(Equal("8"))
				g.Expect(p.logged()).To(Equal(1))
				g.Expect(p.asking("fieldSelector")).To(BeNumerically("<=", 3), "a refused list is not sent again before ten minutes are over")
				before := p.notified.Load()
				p.shelf.grant("get list watch")
				settle(2 * time.Minute)
				g.Expect(p.notified.Load()).To(BeNumerically(">", before))
				p.forget()
				p.put("cf")
				settle(0)
				g.Expect(p.copied(ctx)).To(Equal("9"), "it is watched again")
				g.Expect(p.since(time.Time{})).To(BeEmpty())

				p.shelf.grant("")
				p.hangUp()
				settle(time.Minute)
				_, err := p.copied(ctx)
				g.Expect(err).To(MatchError(cluster.ErrUnseen), "all rights were taken away")
			})
		})
	}
}

func TestTheAPIServerIsRightWhenItsVersionsGoBack(t *testing.T) {
	for name, has := range map[string]cluster.Access{"watched": all, "polled": getOnly} {
		t.Run(name, func(t *testing.T) {
			following(t, "get list watch", has, inCF, func(g Gomega, ctx context.Context, p *followed) {
				g.Expect(p.Seen(ctx)).To(Succeed())
				for range 3 {
					p.Answered(secretOf("cf"))
					p.put("cf")
				}
				settle(time.Minute)
				g.Expect(p.copied(ctx)).To(Equal("10"))
				p.restore(map[string]int{"cf": 5}, 6)
				settle(time.Minute)
				g.Expect(p.copied(ctx)).To(Equal("5"))
				p.put("cf")
				settle(time.Minute)
				g.Expect(p.copied(ctx)).To(Equal("7"), "changes are seen although their versions are old")
				p.restore(nil, 6)
				settle(time.Minute)
				_, err := p.copied(ctx)
				g.Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
			})
		})
	}
}

func TestAWatchThatDoesNotBeginWithTheObject(t *testing.T) {
	silent := func(r *http.Request) (*http.Response, error) {
		if r.URL.Query().Get("sendInitialEvents") == "true" {
			return hangsInBody(r)
		}
		return status(http.StatusInternalServerError, "InternalError", "etcd is down"), nil
	}
	followingAt(t, silent, "get list watch", all, inCF, func(g Gomega, ctx context.Context, p *followed) {
		settle(11 * time.Second)
		_, err := p.copied(ctx)
		g.Expect(err).To(And(MatchError(cluster.ErrUnseen), MatchError(ContainSubstring("etcd is down"))), "a list shows why")
		p.answers(p.shelf.answer)
		settle(time.Minute)
		g.Expect(p.copied(ctx)).To(Equal("7"))
	})
}

func TestAnEarlierReleaseCannotWatchFromTheLatestStateOn(t *testing.T) {
	var shelf *shelf
	earlier := func(r *http.Request) (*http.Response, error) {
		if q := r.URL.Query(); q.Get("sendInitialEvents") == "true" {
			return status(http.StatusUnprocessableEntity, "Invalid", "sendInitialEvents is forbidden"), nil
		}
		return shelf.answer(r)
	}
	shelf = newShelf("get list watch")
	followingAt(t, earlier, "", all, inCF, func(g Gomega, ctx context.Context, p *followed) {
		p.shelf = shelf
		g.Expect(p.Seen(ctx)).To(Succeed())
		synctest.Wait()
		for _, s := range p.since(time.Time{}) {
			if !strings.Contains(s.uri, "watch=true") {
				g.Expect(s.uri).NotTo(ContainSubstring("resourceVersion"), "not the API server's own copy, which may be late")
			}
		}
		p.put("cf")
		settle(0)
		g.Expect(p.copied(ctx)).To(Equal("8"))
		g.Expect(p.since(time.Time{})).To(HaveLen(3))
	})
}

func TestRunEndsWithItsContextWhateverHangs(t *testing.T) {
	for name, c := range map[string]struct {
		has    cluster.Access
		server server
	}{
		"a list": {all, hangs}, "the body of a list": {all, hangsInBody}, "a reading": {getOnly, hangs}, "a server that refuses": {all, refuses},
	} {
		t.Run(name, func(t *testing.T) {
			followingAt(t, c.server, "get list watch", c.has, inCF, func(g Gomega, ctx context.Context, p *followed) {
				short, cancel := context.WithTimeout(ctx, time.Minute)
				defer cancel()
				g.Expect(p.Seen(short)).To(MatchError(And(ContainSubstring("Secret one"), ContainSubstring("could not be read"))))
				settle(3 * time.Second)
			})
		})
	}
	t.Run("the question for rights", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := NewWithT(t)
			w := &wire{answer: works}
			objects, err := cluster.NewObjects(&rest.Config{Host: "https://api.example.org", Transport: w}, GinkgoLogr, cluster.Followed{Object: secretOf("cf"), Access: func(ctx context.Context) (cluster.Access, error) {
				<-ctx.Done()
				return cluster.Access{}, ctx.Err()
			}})
			g.Expect(err).NotTo(HaveOccurred())
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			start := time.Now()
			objects.Run(ctx)
			g.Expect(time.Since(start)).To(Equal(time.Hour))
			g.Expect(w.since(start)).To(BeEmpty())
		})
	})
}

// refuses answers like a port without a listener. Reflectors recognise the error by its number.
func refuses(*http.Request) (*http.Response, error) {
	return nil, fmt.Errorf("dial tcp: %w", syscall.ECONNREFUSED)
}
