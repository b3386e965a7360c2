package main
import ("testing";"net/http";"net/http/httptest";"bytes")
func BenchmarkOne(b *testing.B){
 quiet()
 rev,_ := conversionOf(newJob(1))
 for _,p := range converters(){ h,_ := p.handler(spec{review:rev}); b.Run(p.name, func(b *testing.B){ b.ReportAllocs(); for b.Loop(){ w:=httptest.NewRecorder(); r:=httptest.NewRequest(http.MethodPost, conversionPath, bytes.NewReader(rev.body)); r.Header.Set("Content-Type","application/json"); h.ServeHTTP(w,r); if w.Code!=200 {b.Fatal(w.Body.String())} } }) }
}
