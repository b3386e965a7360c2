package world

// This file is recordings of the calls that replicas answer. A recording is the call as API servers know it, and holds no data of a
// Secret.

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/internal/record"
	"code.cloudfoundry.org/eirinix/recording"
)

const vault = "vaults" // judges Secrets, and says their data

// mostRecorded is the number of recordings that a replica keeps.
const mostRecorded = 10_000

// fewRecorded and fewBytes are the same in half of the worlds, whose folders are soon full.
const fewRecorded, fewBytes = 4, 400_000

// full reports whether folders of recordings become full.
func (p Plan) full() bool { return p.Records && p.Seed%16 == 8 && !p.Shadow }

// recordings are the calls of a world as API servers know them. World.mu guards them.
type recordings struct {
	dirs   []string
	calls  map[types.UID]*sentCall
	tokens []string // the data of Secrets
}

// sentCall is a call, and its response if one has come.
type sentCall struct {
	path     string
	request  *admissionv1.AdmissionRequest
	sent     any // the request as it is sent
	response *admissionv1.AdmissionResponse
	failed   bool // a step of it has failed
}

// vaulted is a Secret that the step about Secrets reads, its label, and its data.
const vaulted, vaultedToken = "vaulted", "token-of-a-secret-that-is-read"

// someRecorded reports whether only some calls are recorded, which isChosen selects.
func (p Plan) someRecorded() bool { return p.Records && !p.full() && p.Seed%3 == 1 }

func isChosen(r *admissionv1.AdmissionRequest) bool { return r.Operation != admissionv1.Update }

// vaults reports whether the step reads Secrets.
func (p Plan) vaults() bool { return p.Records && !p.Reads && p.settled("right") && !p.audits() }

// secretThatIsRead is that Secret.
func secretThatIsRead() *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: vaulted, Labels: map[string]string{vaulted: "yes"}}, Data: map[string][]byte{"token": []byte(vaultedToken)}}
}

// addVault gives the Manager the step about Secrets, which can read others.
func addVault(m *eirinix.ExtensionManager, reads, audited bool) error {
	settings := eirinix.Settings{}
	if audited {
		settings.AllowClusterCritical = true // one of them can hold another program
		settings.Namespaces = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpIn, Values: []string{"shop", bank}}}}
	}
	if reads {
		settings.Reads = []eirinix.Read{{Object: &corev1.Secret{}, Namespaces: []string{"shop"}, Labels: &metav1.LabelSelector{MatchLabels: map[string]string{vaulted: "yes"}}, MaxStale: eirinix.AnyAge}}
	}
	judge := func(ctx context.Context, c *eirinix.Call, secret *corev1.Secret) error {
		if reads {
			var all corev1.SecretList
			if err := c.Reader().List(ctx, &all); err != nil {
				return err
			}
		}
		c.Warn("it holds %s", spelledAs(string(secret.Data["token"])))
		if secret.Labels[denyLabel] != "" {
			return eirinix.Deny("%s denies %s", vault, secret.Data["token"])
		}
		return nil
	}
	return m.AddExtension(eirinix.Validation[*corev1.Secret]{
		ID: vault, Settings: settings, Create: judge,
		Update: func(ctx context.Context, c *eirinix.Call, _, secret *corev1.Secret) error {
			return judge(ctx, c, secret)
		},
	})
}

// spellingsOf are the ways in which a text can repeat the data of a Secret.
func spellingsOf(token string) []string {
	plain := []byte(token)
	return []string{token, base64.RawStdEncoding.EncodeToString(plain), strings.ReplaceAll(strings.Trim(fmt.Sprint(plain), "[]"), " ", ",")}
}

// spelledAs is one of them, amid other letters.
func spelledAs(token string) string {
	all := spellingsOf(token)
	n := 0
	for _, c := range token {
		n += int(c)
	}
	as := all[n%len(all)]
	if n%len(all) == 1 {
		as = "auth"[:n/3%4] + as + "end"[:n/12%4]
	}
	return as
}

// records has a replica record its calls until it ends.
func (w *World) records(p *process) {
	if !w.plan.Records {
		return
	}
	dir, err := os.MkdirTemp("", "world-")
	if err == nil {
		options := recording.Options{Dir: dir, MaxFiles: mostRecorded}
		if w.plan.someRecorded() {
			options.Only = isChosen
		}
		if w.plan.full() {
			options.MaxFiles, options.MaxBytes = fewRecorded, fewBytes
			w.tasks.Go(func() { w.fills(p, dir) })
		}
		p.recorded, err = recording.Start(p.manager, options)
	}
	if err != nil {
		w.violate("%s records nothing: %v", p, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.recordings.dirs = append(w.recordings.dirs, dir)
}

// fills sees that a folder holds more and more recordings until it is full, and then as many. A large one can take the room of several
// others for a while.
func (w *World) fills(p *process, dir string) {
	most, newest, came := 0, "", 0
	for w.wait(time.Minute) {
		select {
		case <-p.ended:
			return
		default:
		}
		all, err := filepath.Glob(filepath.Join(dir, "[0-9]*.json"))
		n := len(all)
		if n >= most {
			most, came = n, 0
		} else if n > 0 && all[n-1] != newest {
			newest = all[n-1]
			came++
		}
		if err != nil || n > fewRecorded || came > 2*fewRecorded {
			w.violate("the folder of %s holds %d recordings, and may hold %d (%d); %d others have come since: %v", p, n, fewRecorded, most, came, err)
		}
	}
}

// recordedSoon sees that the recording of a process that has ended is over.
func (p *process) recordedSoon() {
	if p.recorded == nil {
		return
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := p.recorded(ctx); err == nil && time.Since(began) > time.Second {
		p.w.violate("%s has ended, and its recording only %s later", p, time.Since(began))
	}
}

// sends notes a call that is sent; answered notes its response.
func (w *World) sends(path string, request *admissionv1.AdmissionRequest) (answered func(*admissionv1.AdmissionResponse, error)) {
	if !w.plan.Records {
		return func(*admissionv1.AdmissionResponse, error) {}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.recordings.calls == nil {
		w.recordings.calls = map[types.UID]*sentCall{}
	}
	call := &sentCall{path: path, request: request, sent: jsonOf(request)}
	w.recordings.calls[request.UID] = call
	return func(response *admissionv1.AdmissionResponse, err error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		call.response, call.failed = response, err != nil && strings.Contains(err.Error(), "500 ") && strings.Contains(err.Error(), " failed: ")
	}
}

// keepsSecrets has an API server admit a Secret.
func (w *World) keepsSecrets(rng *rand.Rand, n int) {
	s := w.servers[rng.IntN(len(w.servers))]
	if failing, frozen := s.state(); failing != 0 || frozen != nil {
		return
	}
	made := func() *unstructured.Unstructured {
		token := fmt.Sprintf("token-%016x", rng.Uint64())
		w.mu.Lock()
		w.recordings.tokens = append(w.recordings.tokens, token)
		w.mu.Unlock()
		secret := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": fmt.Sprint("secret", n), "namespace": "shop"},
			"data": map[string]any{"token": encoded([]byte(token))},
		}}
		if rng.IntN(3) == 0 {
			text, _ := secret.MarshalJSON() // of texts
			secret.SetAnnotations(map[string]string{corev1.LastAppliedConfigAnnotation: string(text)})
		}
		if rng.IntN(3) == 0 {
			secret.SetLabels(map[string]string{denyLabel: "yes"})
		}
		return secret
	}
	a := ask{operation: admissionv1.Create, resource: metav1.GroupVersionResource{Version: "v1", Resource: "secrets"}, kind: metav1.GroupVersionKind{Version: "v1", Kind: "Secret"}, object: made()}
	if rng.IntN(2) == 0 {
		a.operation, a.old = admissionv1.Update, made()
	}
	w.offers(s, a)
}

// comparesRecordings compares the recordings with the calls, when all processes have ended, and removes them.
func (w *World) comparesRecordings() {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer func() {
		for _, dir := range w.recordings.dirs {
			_ = os.RemoveAll(dir) // a temporary folder
		}
	}()
	found := map[types.UID]bool{}
	for _, dir := range w.recordings.dirs {
		all, err := record.Read(dir)
		if err != nil {
			w.breaks("the recordings cannot be read: %v", err)
			return
		}
		for _, r := range all {
			found[r.Review.Request.UID] = true
			if w.plan.someRecorded() && !isChosen(r.Review.Request) {
				w.breaks("the recording %s is of a call that is not to be recorded", filepath.Base(r.File))
			}
			w.isRecorded(r)
		}
		w.holdsNoSecret(dir)
	}
	for uid, call := range w.recordings.calls {
		if (call.response != nil || call.failed) && !found[uid] && !w.plan.full() && (!w.plan.someRecorded() || isChosen(call.request)) && call.request.Resource.Resource != "configmaps" { // which are canaries
			w.breaks("the call of %s for the %s of %s has been answered, and is not recorded", call.path, call.request.Operation, call.request.Name)
		}
	}
}

// holdsNoSecret looks for the data of Secrets in the files of a folder. The caller holds mu.
func (w *World) holdsNoSecret(dir string) {
	files, err := filepath.Glob(filepath.Join(dir, "*-secrets-*"))
	if err != nil {
		return // the pattern is good
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			w.breaks("a recording cannot be read: %v", err)
		}
		for _, token := range w.recordings.tokens {
			if slices.ContainsFunc(spellingsOf(token), func(as string) bool { return strings.Contains(string(text), as) }) {
				w.breaks("the recording %s holds the data of a Secret: %s", filepath.Base(file), token)
			}
		}
	}
}

// isRecorded compares a recording with its call. The caller holds mu.
func (w *World) isRecorded(r record.Recorded) {
	call := w.recordings.calls[r.Review.Request.UID]
	if call == nil && slices.Contains([]string{"hostile", "first"}, r.Review.Request.Name) {
		return // of callers that are no API servers
	}
	if call == nil {
		w.breaks("the recording %s is of a call that no API server has sent", filepath.Base(r.File))
		return
	}
	if r.Path != call.path {
		w.breaks("the recording of a call of %s says that it was one of %s", call.path, r.Path)
	}
	if call.response != nil && (r.Review.Response == nil || r.Review.Response.Allowed != call.response.Allowed) {
		w.breaks("the call of %s for the %s of %s has been answered, and its recording holds another response, or none: %+v", call.path, call.request.Operation, call.request.Name, r)
	}
	if call.request.Resource.Resource == "secrets" {
		return
	}
	if was, is := call.sent, jsonOf(r.Review.Request); !reflect.DeepEqual(was, is) {
		w.breaks("the recording of a call of %s holds another request: %s", call.path, difference("", is, was))
	}
	if call.response == nil || r.Review.Response == nil {
		return
	}
	if was, is := jsonOf(call.response), jsonOf(r.Review.Response); !reflect.DeepEqual(was, is) || r.Status != 200 {
		w.breaks("the recording of a call of %s holds another response (%d): %s", call.path, r.Status, difference("", is, was))
	}
	w.readsRecorded(call, r)
}

// readsRecorded sees that a recording holds the policy that its step has seen. The caller holds mu.
func (w *World) readsRecorded(call *sentCall, r record.Recorded) {
	if path.Base(call.path) != reader || call.response.Patch == nil || r.ReadsLeftOut != "" {
		return
	}
	var object unstructured.Unstructured
	if text, err := json.Marshal(call.request.Object); err != nil || object.UnmarshalJSON(text) != nil {
		return
	}
	after, err := patched(&object, call.response.Patch)
	if err != nil {
		return
	}
	seen := after.GetAnnotations()["ran-"+reader]
	for _, read := range r.Reads {
		if slices.ContainsFunc(read.Objects, func(o map[string]any) bool {
			return (&unstructured.Unstructured{Object: o}).GetLabels()[generationLabel] == seen
		}) {
			return
		}
	}
	w.breaks("the recording of a call of %s does not hold policy %s, which its step has seen: %v", call.path, seen, r.Reads)
}
