namespace KvCluster.ServiceDefaults.Security;

/// <summary>A certificate and its private key, as PEM.</summary>
internal sealed record IssuedCertificate(string CertificatePem, string KeyPem);
