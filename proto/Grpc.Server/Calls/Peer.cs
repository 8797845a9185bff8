using System.Net.Sockets;
using System.Security.Cryptography.X509Certificates;
using System.Text;
using Grpc.Core;
using Microsoft.AspNetCore.Http.Features;

namespace Grpc.AspNetCore.Server.Calls;

/// <summary>Formats a caller's address in gRPC's form.</summary>
internal static class PeerAddress
{
    public static string Format(IHttpConnectionFeature? connection) => connection?.RemoteIpAddress switch
    {
        null => "unknown",
        { AddressFamily: AddressFamily.InterNetworkV6 } address => $"ipv6:[{address}]:{connection.RemotePort}",
        var address => $"ipv4:{address}:{connection.RemotePort}",
    };
}

/// <summary>Describes a caller's certificate, which the handshake has verified, in gRPC's form.</summary>
internal static class PeerCertificate
{
    private const string AlternativeName = "x509_subject_alternative_name";
    private const string CommonName = "x509_common_name";

    private static readonly AuthContext None = new(null, []);

    public static AuthContext Describe(X509Certificate2? certificate)
    {
        if (certificate is null)
            return None;
        var properties = new Dictionary<string, List<AuthProperty>>(StringComparer.Ordinal);
        Add(AlternativeName, certificate.Extensions.OfType<X509SubjectAlternativeNameExtension>().SelectMany(static names => names.EnumerateDnsNames()));
        Add(CommonName, [certificate.GetNameInfo(X509NameType.SimpleName, forIssuer: false)]);
        return new AuthContext(properties.ContainsKey(AlternativeName) ? AlternativeName : CommonName, properties);

        void Add(string name, IEnumerable<string> values)
        {
            List<AuthProperty> found = [.. values.Select(value => AuthProperty.Create(name, Encoding.UTF8.GetBytes(value)))];
            if (found.Count > 0)
                properties.Add(name, found);
        }
    }
}
