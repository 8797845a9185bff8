using System.Net.Security;
using System.Net.Sockets;

namespace KvCluster.Tests.ServiceDefaults.Security;

/// <summary>Reads the certificates of servers with handshakes of new connections.</summary>
internal static class ServerCertificates
{
    public static string ThumbprintOf(string address)
    {
        var url = new Uri(address);
        using var client = new TcpClient(url.Host, url.Port);
        using var secure = new SslStream(client.GetStream(), leaveInnerStreamOpen: false, (_, _, _, _) => true);
        secure.AuthenticateAsClient(new SslClientAuthenticationOptions { TargetHost = url.Host, ApplicationProtocols = [SslApplicationProtocol.Http2] });
        return secure.RemoteCertificate!.GetCertHashString();
    }
}
