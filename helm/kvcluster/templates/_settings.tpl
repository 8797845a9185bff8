{{- /*
  The settings file of a node. It is an annotation of the pod, so each pod has the file of its own revision. A pod that an upgrade has not reached would read the new file
  of a ConfigMap when its container restarts, and a wrong setting would stop it too. All annotations of a pod may have 256 KiB; this has about one.
  What scaling changes is in the ConfigMap "creation" instead, because a changed annotation restarts the pods. Nothing else is a variable: Kubernetes merges the
  list of a container's variables, so one that a failed upgrade added would stay in spite of a rollback.
*/ -}}
{{- define "kv.nodeSettings" -}}
{{- $chart := dict
  "data" "/data"
  "listen" (printf "%s://0.0.0.0:7401" (include "kv.scheme" .))
  "cluster" (include "kv.cluster" .)
  "coordinator" (include "kv.coordinator" .)
  "replicas" .Values.cluster.replicationFactor
  "stop-grace-seconds" (sub (int .Values.node.terminationGracePeriodSeconds) 5)
-}}
{{- if include "kv.etcdSecret" . -}}
{{- $_ := set $chart "coordinator-ca" "/etc/kvcluster/etcd/ca.crt" -}}
{{- if or .Values.etcd.enabled .Values.externalEtcd.clientCertificate -}}
{{- $_ := set $chart "coordinator-cert" "/etc/kvcluster/etcd/tls.crt" -}}
{{- $_ := set $chart "coordinator-key" "/etc/kvcluster/etcd/tls.key" -}}
{{- end -}}
{{- end -}}
{{- with .Values.externalEtcd.user -}}
{{- $_ := set $chart "coordinator-user" . -}}
{{- $_ := set $chart "coordinator-password-file" "/etc/kvcluster/etcd/password" -}}
{{- end -}}
{{- toYaml (mergeOverwrite $chart (include "kv.serverSettings" . | fromYaml) .Values.node.settings) -}}
{{- end -}}

{{- /* The settings file of a router. */ -}}
{{- define "kv.routerSettings" -}}
{{- $chart := dict
  "listen" (printf "%s://0.0.0.0:7400" (include "kv.scheme" .))
  "nodes" (include "kv.nodesAddress" .)
-}}
{{- toYaml (mergeOverwrite $chart (include "kv.serverSettings" . | fromYaml) .Values.router.settings) -}}
{{- end -}}

{{- /* What both have in common. A router that required no certificate would let anybody in under its own. */ -}}
{{- define "kv.serverSettings" -}}
admin: http://0.0.0.0:7480
log-format: json
{{- if include "kv.tls" . }}
tls-ca: /etc/kvcluster/tls/ca.crt
tls-cert: /etc/kvcluster/tls/tls.crt
tls-key: /etc/kvcluster/tls/tls.key
tls-client-auth: {{ .Values.tls.clientAuth }}
{{- else }}
allow-plaintext: true
{{- end }}
{{- if .Values.console.tokenSecret }}
admin-token-file: /etc/kvcluster/console/token
{{- end }}
{{- end -}}

{{- /*
  The volume with a program's settings file and secrets: (list root part secret), where secret has the program's certificate. One volume, because Kubernetes
  replaces the list of a volume's sources but merges the list of volumes: one that a failed upgrade added would stay.
*/ -}}
{{- define "kv.files" -}}
{{- $root := index . 0 -}}
{{- $part := index . 1 -}}
- name: files
  projected:
    defaultMode: 0440
    sources:
      - downwardAPI: {items: [{path: settings.yaml, fieldRef: {fieldPath: "metadata.annotations['kvcluster.dev/settings']"}}]}
      {{- if include "kv.tls" $root }}
      - secret: {name: {{ index . 2 }}, items: [{key: ca.crt, path: tls/ca.crt}, {key: tls.crt, path: tls/tls.crt}, {key: tls.key, path: tls/tls.key}]}
      {{- end }}
      {{- with $root.Values.console.tokenSecret }}
      - secret: {name: {{ . }}, items: [{key: token, path: console/token}]}
      {{- end }}
      {{- if eq $part "node" }}
      {{- with include "kv.etcdSecret" $root }}
      - secret: {name: {{ . }}, items: [{key: ca.crt, path: etcd/ca.crt}{{ if or $root.Values.etcd.enabled $root.Values.externalEtcd.clientCertificate }}, {key: tls.crt, path: etcd/tls.crt}, {key: tls.key, path: etcd/tls.key}{{ end }}]}
      {{- end }}
      {{- with $root.Values.externalEtcd.passwordSecret }}
      - secret: {name: {{ . }}, items: [{key: password, path: etcd/password}]}
      {{- end }}
      {{- end }}
{{- end -}}
