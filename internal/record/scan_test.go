package record_test

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// forms are the forms in which a value that was removed from a call is found elsewhere in it.
var forms = map[string]func(string) string{
	"plain":             func(s string) string { return s },
	"in a text":         func(s string) string { return "it is " + s + "!" },
	"in JSON":           func(s string) string { return "say " + quoted(s) },
	"in a query":        func(s string) string { return "https://x/?p=" + url.QueryEscape(s) },
	"in a path":         func(s string) string { return "https://x/" + url.PathEscape(s) + "/y" },
	"in base64":         func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) },
	"in base64 of URLs": func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) },
	"in a header":       func(s string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte("user:"+s)) },
	"in hexadecimal":    func(s string) string { return hex.EncodeToString([]byte(s)) },
	"as bytes":          func(s string) string { return fmt.Sprint([]byte(s)) },
}

var _ = Describe("A random secret", func() {
	It("reaches no file, in whatever form and place the call repeats it", func() {
		const alphabet = `abcdefghijklmnopqrstuvwxyzABCXYZ0123456789 -_+/="\<>&%:@!` + "\n"
		random := rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), 0))
		// Each place holds a text T. The Secret holds the value V, which is in base64.
		places := []string{
			`{"kind":"Secret","metadata":{"annotations":{"a":T},"labels":{"a":T}},"data":{"a":V}}`,
			`{"kind":"Secret","metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":C}},"data":{"a":V},"more":{"a":[T]}}`,
			`{"kind":"List","items":[{"kind":"Secret","data":{"a":V}},{"kind":"Pod","spec":{"env":[{"value":T}]}},{"kind":"ConfigMap","data":{"a":T}}]}`,
			`{"kind":"Pod","metadata":{"annotations":{"my.tool/copy":C,"a":T}},"spec":{"a":T}}`,
			`{"kind":"Template","metadata":{"managedFields":[{"manager":T}]},"objects":[{"spec":{"inner":{"kind":"Secret","stringData":{"a":P},"x":T}}}]}`,
		}
		patches := []string{
			`[]`, `[{"op":"add","path":"/extra","value":{"a":T}}]`, `[{"op":"add","path":"/metadata","value":{"annotations":{"a":T,"b":C}}}]`,
			`[{"op":"add","path":"/a","value":T},{"op":"remove","path":"/a"}]`,
		}
		for range 200 {
			value := make([]byte, 7+random.IntN(40))
			for i := range value {
				value[i] = alphabet[random.IntN(len(alphabet))]
			}
			secret := "q" + string(value) + "q" // without space around it
			form := []string{}
			for name := range forms {
				form = append(form, name)
			}
			name := form[random.IntN(len(form))]
			text := forms[name](secret)
			inBase64 := base64.StdEncoding.EncodeToString([]byte(secret))
			fill := func(template string) string {
				copied := `{"kind":"Secret","data":{"a":"` + inBase64 + `"}}`
				return strings.NewReplacer(`T`+"}", quoted(text)+"}", `T,`, quoted(text)+",", `T]`, quoted(text)+"]", "V}", quoted(inBase64)+"}", "P}", quoted(secret)+"}", "P,", quoted(secret)+",",
					"C}", quoted(copied)+"}", "C,", quoted(copied)+",").Replace(template)
			}
			patch := base64.StdEncoding.EncodeToString([]byte(fill(patches[random.IntN(len(patches))])))
			body := review(fill(places[random.IntN(len(places))]), `"options":{"fieldManager":`+quoted(text)+`}`)
			Expect(json.Valid([]byte(body))).To(BeTrue(), body)
			answer := strings.Replace(answerWith(patch), `"allowed":true`, `"allowed":true,"warnings":[`+quoted(text)+`],"auditAnnotations":{"a":`+quoted(text)+`},"status":{"message":`+quoted(text)+`}`, 1)

			w := newWorld(allow)
			ask(answering(w, answer), body)
			recorded := w.only()
			detail := fmt.Sprintf("%q %s, from %s with %s", secret, name, body, answer)
			response := w.read()[0].Review.Response
			for _, spelt := range forms {
				for _, written := range []string{recorded, string(response.Patch), fmt.Sprint(members(recorded))} {
					Expect(written).NotTo(ContainSubstring(spelt(secret)), detail)
				}
			}
			Expect(response.Warnings[0]).NotTo(Equal(text), detail)
			w.Server.Close()
		}
	})
})
