using System.Net.Security;
using System.Security.Cryptography.X509Certificates;

namespace KvCluster.Tls;

/// <summary>What a program has as objects, and what it decides itself. Each that is set takes the place of what files say. Used on any thread.</summary>
internal sealed record GivenCredentials
{
    /// <summary>The authorities that may have signed the other side's certificate.</summary>
    public X509Certificate2Collection? Authorities { get; init; }

    /// <summary>Returns what is presented; null: nothing. Asked with each connection.</summary>
    public Func<SslStreamCertificateContext?>? Own { get; init; }

    /// <summary>Decides whether the other side's certificate is accepted.</summary>
    public RemoteCertificateValidationCallback? Accept { get; init; }
}
