package eirinix_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
	"code.cloudfoundry.org/eirinix/recording"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

// zones puts pods into the zone of their team, and refuses those that hold the team's password.
func zones(namespace string, prefix string) []any {
	teams := []eirinix.Read{{
		Object: &corev1.ConfigMap{}, Namespaces: []string{namespace}, Labels: &metav1.LabelSelector{MatchLabels: map[string]string{"kind": "team"}}, Required: true,
		Transform: func(o client.Object) { o.SetLabels(nil) },
	}, {Object: &corev1.Secret{}, Namespaces: []string{namespace}}}
	return []any{
		eirinix.Mutation[*corev1.Pod]{ID: "zone", Settings: eirinix.Settings{Reads: teams}, Apply: func(ctx context.Context, c *eirinix.Call, pod *corev1.Pod) error {
			var team corev1.ConfigMap
			err := c.Reader().Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: pod.Labels["team"]}, &team)
			if client.IgnoreNotFound(err) != nil {
				return err
			}
			if err != nil {
				return eirinix.Deny("there is no team %q", pod.Labels["team"])
			}
			metav1.SetMetaDataLabel(&pod.ObjectMeta, "zone", prefix+team.Data["zone"])
			return nil
		}},
		eirinix.Validation[*corev1.Pod]{ID: "password", Settings: eirinix.Settings{Reads: teams}, Create: func(ctx context.Context, c *eirinix.Call, pod *corev1.Pod) error {
			var secrets corev1.SecretList
			if err := c.Reader().List(ctx, &secrets, client.InNamespace(pod.Namespace)); err != nil {
				return err
			}
			for _, s := range secrets.Items {
				if password := string(s.Data["password"]); password != "" && strings.Contains(pod.Annotations["url"], password) {
					c.Warn("use the Secret for %s", password)
					return eirinix.Deny("%s is the password in %s", password, s.Name)
				}
			}
			return nil
		}},
	}
}

var _ = Describe("A Manager whose steps read", Label("api-server"), func() {
	It("records what they read, and is replayed without the cluster", func(ctx SpecContext) {
		const password = "correct-horse-battery"
		namespace := newNamespace(ctx)
		_, err := clients().CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"kind": "team"}}, Data: map[string]string{"zone": "west"},
		}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		_, err = clients().CoreV1().Secrets(namespace).Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: "db"}, StringData: map[string]string{"password": password},
		}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())

		m := eirinix.NewManager(urlOptions(namespace))
		for _, step := range zones(namespace, "") {
			Expect(m.AddExtension(step)).To(Succeed())
		}
		runManager(ctx, m)
		dir := filepath.Join(GinkgoT().TempDir(), "calls")
		team := func(name, team, url string) (*corev1.Pod, error) {
			pod := NewPod(name, map[string]string{"team": team})
			pod.Annotations = map[string]string{"url": url}
			return createPod(ctx, namespace, pod)
		}
		Eventually(func() (*corev1.Pod, error) { return team("before", "shop", "") }).WithTimeout(patience).Should(HaveField("Labels", HaveKeyWithValue("zone", "west")))
		stop, err := recording.Start(m, recording.Options{Dir: dir})
		Expect(err).NotTo(HaveOccurred())
		Expect(team("good", "shop", "db://u:none@h")).To(HaveField("Labels", HaveKeyWithValue("zone", "west")))
		_, err = team("homeless", "none", "")
		Expect(err).To(MatchError(ContainSubstring(`there is no team "none"`)))
		_, err = team("leaky", "shop", "db://u:"+password+"@h")
		Expect(err).To(MatchError(ContainSubstring(password + " is the password in db")))
		Expect(stop(ctx)).To(Succeed())

		files, err := filepath.Glob(filepath.Join(dir, "*.json"))
		Expect(err).NotTo(HaveOccurred())
		Expect(files).To(HaveLen(5), "two for each pod that the mutation did not deny")
		for _, file := range files {
			text, err := os.ReadFile(file)
			Expect(err).NotTo(HaveOccurred())
			Expect(string(text)).To(ContainSubstring(`"reads":[`))
			if strings.Contains(string(text), `"path":"/validate/`) { // the mutation knows no Secret
				Expect(string(text)).NotTo(ContainSubstring(password))
			}
		}

		h := eirinixtest.NewHarness(GinkgoTB(), zones(namespace, "")...)
		calls := h.Replay(dir)
		Expect(calls).To(HaveLen(5))
		Expect(eirinixtest.As[*corev1.Pod](calls[0].Result).Labels).To(HaveKeyWithValue("zone", "west"))
		Expect(calls[2]).To(eirinixtest.BeDenied().WithMessage(`there is no team "none"`))
		Expect(calls[4]).To(And(eirinixtest.BeDenied().WithMessage("redacted is the password in db"), eirinixtest.HaveWarned("use the Secret for redacted")))
		Expect(calls[4].Redacted).To(ContainElement("eirinix.reads[0].objects[0].data"))
		h.CheckReplay(dir)

		changed := eirinixtest.NewHarness(GinkgoTB(), zones(namespace, "eu-")...).Replay(dir)
		Expect(changed[0].Difference()).To(And(ContainSubstring("-    zone: west"), ContainSubstring("+    zone: eu-west")))
		Expect(changed[2].Difference()).To(BeEmpty())
	}, SpecTimeout(2*patience))
})
