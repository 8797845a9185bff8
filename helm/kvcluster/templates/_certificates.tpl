{{- /*
  Whether nodes and routers speak TLS, as "true" or nothing. If no value says it, a new installation does, and one that exists keeps to what it does. That is found out
  once, and then it is the value. What only renders the chart finds nothing, as for a new installation.
*/ -}}
{{- define "kv.tls" -}}
{{- if kindIs "invalid" .Values.tls.enabled -}}
{{- $name := printf "%s-node" (include "kv.fullname" .) -}}
{{- $found := list (lookup "apps/v1" "StatefulSet" .Release.Namespace $name) (lookup "v1" "PersistentVolumeClaim" .Release.Namespace (printf "data-%s-1" $name)) (lookup "v1" "Secret" .Release.Namespace (include "kv.nodeSecret" .)) -}}
{{- $_ := set .Values.tls "enabled" (eq "true" (include "kv.speaksTls" $found)) -}}
{{- end -}}
{{- ternary "true" "" .Values.tls.enabled -}}
{{- end -}}

{{- /* The same for the release's own etcd. A new one does if nodes do. */ -}}
{{- define "kv.etcdTls" -}}
{{- if kindIs "invalid" .Values.etcd.tls.enabled -}}
{{- $enabled := false -}}
{{- if .Values.etcd.enabled -}}
{{- $name := printf "%s-etcd" (include "kv.fullname" .) -}}
{{- $statefulSet := lookup "apps/v1" "StatefulSet" .Release.Namespace $name -}}
{{- $claim := lookup "v1" "PersistentVolumeClaim" .Release.Namespace (printf "data-%s-0" $name) -}}
{{- if or $statefulSet $claim -}}
{{- $enabled = eq "true" (include "kv.speaksTls" (list $statefulSet $claim (lookup "v1" "Secret" .Release.Namespace (include "kv.etcdSecretName" .)))) -}}
{{- else -}}
{{- $enabled = eq "true" (include "kv.tls" .) -}}
{{- end -}}
{{- end -}}
{{- $_ := set .Values.etcd.tls "enabled" $enabled -}}
{{- end -}}
{{- ternary "true" "" .Values.etcd.tls.enabled -}}
{{- end -}}

{{- /*
  Whether TLS is spoken by what there is: (list statefulset claim secret), each of them empty if it does not exist. Volumes without a StatefulSet are left by a release that was
  uninstalled: it spoke TLS if its certificate is left, too.
*/ -}}
{{- define "kv.speaksTls" -}}
{{- if index . 0 -}}
{{- ternary "true" "" (contains "https://0.0.0.0:" (toJson (index . 0))) -}}
{{- else -}}
{{- ternary "true" "" (or (empty (index . 1)) (not (empty (index . 2)))) -}}
{{- end -}}
{{- end -}}

{{- /* Whether Jobs of this release make the certificates of nodes, routers and clients: not if secrets are named, or cert-manager makes them. */ -}}
{{- define "kv.makesCertificates" -}}
{{- if and (include "kv.tls" .) (not .Values.tls.certManager.enabled) (not .Values.tls.nodeSecret) -}}true{{- end -}}
{{- end -}}

{{- /* The same for the release's own etcd. */ -}}
{{- define "kv.makesEtcdCertificate" -}}
{{- if and .Values.etcd.enabled (include "kv.etcdTls" .) (not .Values.tls.certManager.enabled) (not .Values.etcd.tls.secret) -}}true{{- end -}}
{{- end -}}

{{- /* The names in certificates, one a line. The first names every node, so that scaling needs no new certificate. */ -}}
{{- define "kv.nodeNames" -}}
{{- $name := include "kv.fullname" . -}}
*.{{ include "kv.cluster" . }}.kvcluster
*.{{ include "kv.host" (list . (printf "%s-node" $name)) }}
{{ include "kv.host" (list . (printf "%s-nodes" $name)) }}
{{ $name }}-nodes
localhost
{{- end -}}

{{- define "kv.routerNames" -}}
{{- $name := include "kv.fullname" . -}}
router.{{ include "kv.cluster" . }}.kvcluster
{{ include "kv.host" (list . $name) }}
{{ $name }}.{{ .Release.Namespace }}.svc
{{ $name }}
localhost
{{- range .Values.tls.routerNames }}
{{ . }}
{{- end }}
{{- end -}}

{{- /* The second is all members' addresses. A member accepts another one only if a name in its certificate has the address that it comes from. */ -}}
{{- define "kv.etcdNames" -}}
{{- $host := include "kv.host" (list . (printf "%s-etcd" (include "kv.fullname" .))) -}}
*.{{ $host }}
{{ $host }}
localhost
{{- end -}}

{{- /* The secrets that Jobs of this release make, one a line. etcd has an authority of its own, because it admits whoever has a certificate of it. */ -}}
{{- define "kv.madeSecrets" -}}
{{- $name := include "kv.fullname" . -}}
{{- $secrets := list -}}
{{- if include "kv.makesCertificates" . -}}
{{- $secrets = list (printf "%s-authority" $name) (include "kv.nodeSecret" .) (include "kv.routerSecret" .) (printf "%s-client-tls" $name) -}}
{{- end -}}
{{- if include "kv.makesEtcdCertificate" . -}}
{{- $secrets = concat $secrets (list (printf "%s-etcd-authority" $name) (include "kv.etcdSecretName" .)) -}}
{{- end -}}
{{- join "\n" $secrets -}}
{{- end -}}

{{- /* Annotations of what is there only while Helm installs or upgrades. The Jobs that speak with the nodes come later, and need the certificates. */ -}}
{{- define "kv.certsHook" -}}
helm.sh/hook: pre-install,pre-upgrade
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}

{{- /* The content of a Job that makes certificates: (list root account). Each authority has a container. */ -}}
{{- define "kv.certsJob" -}}
{{- $root := index . 0 -}}
{{- $name := include "kv.fullname" $root -}}
backoffLimit: 3
activeDeadlineSeconds: 300
template:
  metadata:
    labels: {{- include "kv.selector" $root | nindent 6 }}
      app.kubernetes.io/component: certs
  spec:
    restartPolicy: Never
    serviceAccountName: {{ $name }}-{{ index . 1 }}
    automountServiceAccountToken: true
    enableServiceLinks: false
    securityContext: {{- include "kv.podSecurity" $root | nindent 6 }}
    {{- with $root.Values.image.pullSecrets }}
    imagePullSecrets: {{- toYaml . | nindent 6 }}
    {{- end }}
    containers:
      {{- if include "kv.makesCertificates" $root }}
      - name: certs
        {{- include "kv.certsContainer" (list $root "authority" (list
          (printf "%s=%s" (include "kv.nodeSecret" $root) (include "kv.nodeNames" $root))
          (printf "%s=%s" (include "kv.routerSecret" $root) (include "kv.routerNames" $root))
          (printf "%s-client-tls" $name))) | nindent 8 }}
      {{- end }}
      {{- if include "kv.makesEtcdCertificate" $root }}
      - name: etcd-certs
        {{- include "kv.certsContainer" (list $root "etcd-authority" (list
          (printf "%s=%s" (include "kv.etcdSecretName" $root) (include "kv.etcdNames" $root)))) | nindent 8 }}
      {{- end }}
{{- end -}}

{{- define "kv.certsContainer" -}}
{{- $root := index . 0 -}}
image: {{ include "kv.image" (list $root "node") }}
imagePullPolicy: {{ $root.Values.image.pullPolicy }}
args:
  - certs
  - secrets
  - --authority={{ include "kv.fullname" $root }}-{{ index . 1 }}
  {{- range index . 2 }}
  - "--certificate={{ replace "\n" "," . }}"
  {{- end }}
  {{- range $label, $value := include "kv.selector" $root | fromYaml }}
  - --label={{ $label }}={{ $value }}
  {{- end }}
resources:
  requests: {cpu: 50m, memory: 64Mi}
  limits: {memory: 256Mi}
securityContext: {{- include "kv.containerSecurity" $root | nindent 2 }}
{{- end -}}

{{- /* The secret with which nodes speak TLS to the coordinator. Empty: they do not. */ -}}
{{- define "kv.etcdSecret" -}}
{{- if not .Values.etcd.enabled -}}
{{- .Values.externalEtcd.tlsSecret -}}
{{- else if include "kv.etcdTls" . -}}
{{- include "kv.etcdSecretName" . -}}
{{- end -}}
{{- end -}}

{{- define "kv.etcdSecretName" -}}
{{- .Values.etcd.tls.secret | default (printf "%s-etcd-tls" (include "kv.fullname" .)) -}}
{{- end -}}

{{- define "kv.nodeSecret" -}}
{{- .Values.tls.nodeSecret | default (printf "%s-node-tls" (include "kv.fullname" .)) -}}
{{- end -}}

{{- define "kv.routerSecret" -}}
{{- .Values.tls.routerSecret | default (printf "%s-router-tls" (include "kv.fullname" .)) -}}
{{- end -}}
