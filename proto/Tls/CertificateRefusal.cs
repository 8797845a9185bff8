using System.Net.Security;
using System.Security.Cryptography.X509Certificates;

namespace KvCluster.Tls;

/// <summary>Describes why the other side's certificate was refused.</summary>
internal static class CertificateRefusal
{
    /// <param name="certificate">The certificate that it presented.</param>
    /// <param name="chain">The chain that was built for it.</param>
    /// <param name="errors">The errors that SslStream found.</param>
    /// <param name="name">The name that the certificate must have; null if none is required.</param>
    /// <param name="authorityFile">The file with the authorities; null for those of the machine.</param>
    public static string Describe(X509Certificate? certificate, X509Chain? chain, SslPolicyErrors errors, string? name, string? authorityFile)
    {
        if (certificate is not X509Certificate2 shown)
            return "it presented no certificate";
        var who = $"its certificate ({shown.Subject})";
        if (errors.HasFlag(SslPolicyErrors.RemoteCertificateChainErrors))
            return $"{who} {DescribeChain(shown, chain, authorityFile)}";
        return $"{who} does not name {name} but {string.Join(", ", NamesOf(shown).DefaultIfEmpty("nothing"))}";
    }

    /// <summary>The host names and addresses that a certificate is valid for.</summary>
    public static IEnumerable<string> NamesOf(X509Certificate2 certificate) => certificate.Extensions.OfType<X509SubjectAlternativeNameExtension>()
        .SelectMany(names => names.EnumerateDnsNames().Concat(names.EnumerateIPAddresses().Select(address => address.ToString())));

    private static string DescribeChain(X509Certificate2 shown, X509Chain? chain, string? authorityFile)
    {
        var status = chain?.ChainStatus.Aggregate(X509ChainStatusFlags.NoError, (all, one) => all | one.Status) ?? X509ChainStatusFlags.PartialChain;
        if ((status & (X509ChainStatusFlags.PartialChain | X509ChainStatusFlags.UntrustedRoot | X509ChainStatusFlags.NotSignatureValid)) != 0)
            return $"is not signed by an authority {(authorityFile is null ? "that this machine trusts" : $"in {authorityFile}")}";
        if (status.HasFlag(X509ChainStatusFlags.NotTimeValid))
            return $"is valid only from {shown.NotBefore.ToUniversalTime():u} to {shown.NotAfter.ToUniversalTime():u}, or its authority has expired";
        return $"is not valid here: {string.Join(", ", chain!.ChainStatus.Select(one => one.StatusInformation.Trim()))}";
    }
}
