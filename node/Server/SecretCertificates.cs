// The certificates of a release on Kubernetes: creates the secrets that its programs use, and renews them. Jobs of the chart run it, perhaps two at once, and
// again after a failure at any point. So every step looks at what is stored: what exists and will do is kept, and an authority, once stored, is the only one. A
// change is conditional on what was read. An exception is one line that says what is wrong; what was written before it is complete in itself, and running it
// again continues.
using System.Net;
using System.Security.Cryptography;
using System.Security.Cryptography.X509Certificates;
using KvCluster.ServiceDefaults.Security;
using KvCluster.Tls;

namespace KvCluster.Node;

/// <summary>Creates and renews certificates of one authority, each in a secret with the files that DevelopmentCertificates writes.</summary>
/// <param name="secrets">Where they are stored.</param>
/// <param name="authorityName">The secret with the authority: ca.crt, which may have further authorities that are trusted too, and ca.key.</param>
/// <param name="labels">For secrets that are created.</param>
/// <param name="now">The time of certificates that are made, and by which others have expired.</param>
/// <param name="output">Gets a line for each secret.</param>
internal sealed class SecretCertificates(
    KubernetesSecrets secrets, string authorityName, IReadOnlyDictionary<string, string> labels, DateTimeOffset now, TextWriter output)
{
    /// <summary>The kind of secrets with a certificate and its key, as cert-manager creates them.</summary>
    private const string CertificateType = "kubernetes.io/tls";

    /// <summary>The kind of secrets whose entries have no rule.</summary>
    private const string AuthorityType = "Opaque";

    /// <summary>The part of its life that a certificate has left when it is renewed.</summary>
    private const int LifePartLeft = 3;

    /// <summary>Others change a secret rarely, so it is not in time only when something changes it all the time.</summary>
    private const int AttemptsMax = 5;

    /// <summary>Creates what is missing, and renews what would not do.</summary>
    /// <exception cref="IOException">A call failed, or a certificate there is not the authority's; the message says what became of it.</exception>
    public async Task EnsureAsync(IReadOnlyList<SecretCertificate> wanted, CancellationToken cancellationToken)
    {
        using var authority = await AuthorityAsync(wanted, cancellationToken).ConfigureAwait(false);
        // All secrets are looked at before the first change, so that a certificate of another authority stops the command with nothing done.
        foreach (var one in wanted)
            _ = Due(authority, await secrets.FindAsync(one.Secret, cancellationToken).ConfigureAwait(false), one);
        foreach (var one in wanted)
            output.WriteLine($"{one.Secret}: {await EnsureAsync(authority, one, cancellationToken).ConfigureAwait(false)}");
    }

    private async Task<SecretAuthority> AuthorityAsync(IReadOnlyList<SecretCertificate> wanted, CancellationToken cancellationToken)
    {
        if (await secrets.FindAsync(authorityName, cancellationToken).ConfigureAwait(false) is { } there)
            return SecretAuthority.Read(there, now);
        foreach (var one in wanted)
        {
            if (await secrets.FindAsync(one.Secret, cancellationToken).ConfigureAwait(false) is { } left
                && left.Data.ContainsKey(DevelopmentCertificates.CertificateFile))
            {
                throw new IOException(
                    $"The secret '{one.Secret}' has a certificate, but there is no secret '{authorityName}' with its authority; nothing was changed. "
                        + $"Programs that trust the former authority would refuse a new one. Restore '{authorityName}', or delete '{one.Secret}'.");
            }
        }
        using var made = new DevelopmentAuthority($"KvCluster {authorityName}", now, now.AddYears(DevelopmentCertificates.AuthorityYears));
        var data = new Dictionary<string, string> { [DevelopmentCertificates.AuthorityFile] = made.CertificatePem,
            [DevelopmentCertificates.AuthorityKeyFile] = made.KeyPem };
        if (await secrets.TryCreateAsync(authorityName, AuthorityType, labels, data, cancellationToken).ConfigureAwait(false))
            output.WriteLine($"{authorityName}: created, valid until {made.End:u}");
        // Another process may have created it a moment before. What is stored counts.
        return await secrets.FindAsync(authorityName, cancellationToken).ConfigureAwait(false) is { } stored
            ? SecretAuthority.Read(stored, now)
            : throw new IOException($"The secret '{authorityName}' was deleted after it had been created; no certificate was made. Run this again.");
    }

    private async Task<string> EnsureAsync(SecretAuthority authority, SecretCertificate wanted, CancellationToken cancellationToken)
    {
        for (var attempt = 0; attempt < AttemptsMax; attempt++)
        {
            var current = await secrets.FindAsync(wanted.Secret, cancellationToken).ConfigureAwait(false);
            var (data, what) = Due(authority, current, wanted);
            if (data.Count == 0)
                return what;
            var isStored = current is null
                ? await secrets.TryCreateAsync(wanted.Secret, CertificateType, labels, data, cancellationToken).ConfigureAwait(false)
                : await secrets.TryChangeAsync(current, data, cancellationToken).ConfigureAwait(false);
            if (isStored)
                return what;
        }
        throw new IOException($"The secret '{wanted.Secret}' was changed by others {AttemptsMax} times while it was to be written; this did not change it. "
            + "Find out what changes it, and run this again.");
    }

    /// <summary>What has to be written into a secret, and why.</summary>
    /// <param name="current">Its present content; null if it does not exist.</param>
    private (IReadOnlyDictionary<string, string> Data, string What) Due(SecretAuthority authority, KubernetesSecret? current, SecretCertificate wanted)
    {
        if (current is null || !current.Data.TryGetValue(DevelopmentCertificates.CertificateFile, out var pem))
            return (authority.Issue(wanted, now), "created");
        using var certificate = CertificateIn(current, pem);
        var signer = authority.SignerOf(certificate) ?? throw new IOException(
            $"The certificate in the secret '{wanted.Secret}' is signed by {certificate.Issuer}, which is none of the authorities in '{authorityName}'; "
            + "no certificate was changed. "
            + $"Programs that trust its authority alone would refuse another one. Add that authority to '{DevelopmentCertificates.AuthorityFile}' of "
            + $"'{authorityName}', or delete '{wanted.Secret}'.");
        if (WhyRenew(authority, current, certificate, signer, wanted) is { } why)
            return (authority.Issue(wanted, now), $"renewed, because {why}");
        return current.Data.GetValueOrDefault(DevelopmentCertificates.AuthorityFile) != authority.CertificatesPem
            ? (new Dictionary<string, string> { [DevelopmentCertificates.AuthorityFile] = authority.CertificatesPem }, $"trusts what '{authorityName}' names "
                + "now")
            : (new Dictionary<string, string>(), $"kept, valid until {certificate.NotAfter.ToUniversalTime():u}");
    }

    private string? WhyRenew(SecretAuthority authority, KubernetesSecret current, X509Certificate2 certificate, string signer, SecretCertificate wanted)
    {
        if (signer != authority.Thumbprint)
            return $"the key in '{authorityName}' is another one";
        if (now >= certificate.NotAfter - (certificate.NotAfter - certificate.NotBefore) / LifePartLeft)
            return $"it expires at {certificate.NotAfter.ToUniversalTime():u}";
        if (!wanted.Names.ToHashSet(StringComparer.OrdinalIgnoreCase).SetEquals(CertificateRefusal.NamesOf(certificate)))
            return $"it names {string.Join(", ", CertificateRefusal.NamesOf(certificate).DefaultIfEmpty("nothing"))}";
        return HasItsKey(current) ? null : "its key is missing or another one";
    }

    private static bool HasItsKey(KubernetesSecret secret)
    {
        try
        {
            using var both = X509Certificate2.CreateFromPem(
                secret.Data[DevelopmentCertificates.CertificateFile], secret.Data.GetValueOrDefault(DevelopmentCertificates.KeyFile));
            return both.HasPrivateKey;
        }
        catch (Exception failure) when (failure is CryptographicException or ArgumentException)
        {
            return false;
        }
    }

    private static X509Certificate2 CertificateIn(KubernetesSecret secret, string pem)
    {
        try
        {
            return X509Certificate2.CreateFromPem(pem);
        }
        catch (CryptographicException failure)
        {
            throw new IOException($"The secret '{secret.Name}' has no certificate in '{DevelopmentCertificates.CertificateFile}' that can be read "
                + $"({failure.Message}); no certificate was changed. "
                + $"If no program uses it, delete '{secret.Name}' and run this again.", failure);
        }
    }
}

/// <summary>A certificate that a secret is to have.</summary>
/// <param name="Secret">The secret's name.</param>
/// <param name="Names">Host names and addresses of a server; empty for a client.</param>
internal sealed record SecretCertificate(string Secret, IReadOnlyList<string> Names)
{
    /// <summary>Parses "SECRET=NAME,NAME", or "SECRET" for a client.</summary>
    /// <exception cref="FormatException">It is something else; the message says what.</exception>
    public static SecretCertificate Parse(string text)
    {
        var (secret, names) = text.IndexOf('=', StringComparison.Ordinal) is >= 0 and var at ? (text[..at], text[(at + 1)..]) : (text, "");
        if (secret.Length == 0 || !secret.All(static c => char.IsAsciiLetterLower(c) || char.IsAsciiDigit(c) || c is '-' or '.'))
            throw new FormatException($"'{secret}' is not the name of a secret.");
        return new SecretCertificate(secret, [.. HostsOf(names)]);
    }

    /// <summary>Parses host names and addresses separated by commas. An address gets the form that certificates return.</summary>
    /// <exception cref="FormatException">One is neither.</exception>
    public static IEnumerable<string> HostsOf(string text) =>
        text.Split(',', StringSplitOptions.TrimEntries | StringSplitOptions.RemoveEmptyEntries).Select(static host =>
            IPAddress.TryParse(host, out var address) ? address.ToString()
            : Uri.CheckHostName(host) != UriHostNameType.Unknown || host.StartsWith("*.", StringComparison.Ordinal) ? host
            : throw new FormatException($"'{host}' is neither a host name nor an address."));
}

/// <summary>The content of the secret with an authority: those that are trusted, and the one among them whose key is there.</summary>
internal sealed class SecretAuthority : IDisposable
{
    private readonly X509Certificate2Collection _trusted;
    private readonly DevelopmentAuthority _issuer;

    private SecretAuthority(X509Certificate2Collection trusted, DevelopmentAuthority issuer, string certificatesPem)
    {
        _trusted = trusted;
        _issuer = issuer;
        CertificatesPem = certificatesPem;
    }

    /// <summary>All that are trusted.</summary>
    public string CertificatesPem { get; }

    /// <summary>That of the one that signs.</summary>
    public string Thumbprint => _issuer.Thumbprint;

    /// <exception cref="IOException">The secret has not what it should, or the authority has expired.</exception>
    public static SecretAuthority Read(KubernetesSecret secret, DateTimeOffset now)
    {
        if (!secret.Data.TryGetValue(DevelopmentCertificates.AuthorityFile, out var certificates)
            || !secret.Data.TryGetValue(DevelopmentCertificates.AuthorityKeyFile, out var key))
            throw Unusable(secret, $"it lacks '{DevelopmentCertificates.AuthorityFile}' or '{DevelopmentCertificates.AuthorityKeyFile}'");
        try
        {
            var trusted = new X509Certificate2Collection();
            trusted.ImportFromPem(certificates);
            var issuer = DevelopmentAuthority.Find(trusted, key) ?? throw Unusable(
                secret, $"'{DevelopmentCertificates.AuthorityKeyFile}' is the key of none of the certificates in '{DevelopmentCertificates.AuthorityFile}'");
            return issuer.End > now ? new SecretAuthority(trusted, issuer, certificates) : throw Unusable(secret, $"the authority expired at {issuer.End:u}");
        }
        catch (Exception failure) when (failure is CryptographicException or ArgumentException)
        {
            throw Unusable(secret, failure.Message);
        }
    }

    /// <summary>The thumbprint of the trusted authority that signed a certificate, also if one of them has expired; null if none did.</summary>
    public string? SignerOf(X509Certificate2 certificate)
    {
        using var chain = new X509Chain();
        chain.ChainPolicy.TrustMode = X509ChainTrustMode.CustomRootTrust;
        chain.ChainPolicy.RevocationMode = X509RevocationMode.NoCheck;
        chain.ChainPolicy.DisableCertificateDownloads = true;
        chain.ChainPolicy.VerificationFlags = X509VerificationFlags.IgnoreNotTimeValid;
        chain.ChainPolicy.CustomTrustStore.AddRange(_trusted);
        return chain.Build(certificate) ? chain.ChainElements[^1].Certificate.Thumbprint : null;
    }

    /// <summary>Makes a certificate, and returns the entries of its secret.</summary>
    public IReadOnlyDictionary<string, string> Issue(SecretCertificate wanted, DateTimeOffset now)
    {
        var until = now.AddDays(DevelopmentCertificates.CertificateDays);
        var issued = _issuer.Issue(wanted.Secret, wanted.Names, now, until < _issuer.End ? until : _issuer.End);
        return new Dictionary<string, string>
        {
            [DevelopmentCertificates.AuthorityFile] = CertificatesPem,
            [DevelopmentCertificates.CertificateFile] = issued.CertificatePem,
            [DevelopmentCertificates.KeyFile] = issued.KeyPem,
        };
    }

    public void Dispose()
    {
        _issuer.Dispose();
        foreach (var certificate in _trusted)
            certificate.Dispose();
    }

    private static IOException Unusable(KubernetesSecret secret, string why) =>
        new($"The authority in the secret '{secret.Name}' cannot be used: {why}; no certificate was changed. Correct the secret, and run this again.");
}
