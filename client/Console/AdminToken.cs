using System.Security.Cryptography;
using System.Text;
using KvCluster.Tls;
using Microsoft.AspNetCore.Http;

namespace KvCluster.AdminConsole;

/// <summary>
/// The token that is required for changes through the console. Its file is read at each use, which is rare, so that a new token needs no restart. Any thread.
/// </summary>
internal sealed class AdminToken
{
    /// <summary>A token of sixteen random characters cannot be guessed over a network.</summary>
    private const int LengthMin = 16;

    private const string Scheme = "Bearer ";

    private readonly string? _file;

    /// <param name="file">Null means that there is none, and nobody may change anything.</param>
    /// <exception cref="UnusableFileException">The file cannot be read, or its token is too short.</exception>
    public AdminToken(string? file)
    {
        _file = file;
        if (file is not null)
            _ = Read(file);
    }

    /// <summary>Whether a token is configured.</summary>
    public bool IsSet => _file is not null;

    /// <summary>
    /// Whether a request presents it as "Authorization: Bearer ...". It is accepted nowhere else, so that it is in no URL and in no log of URLs.
    /// </summary>
    /// <exception cref="UnusableFileException">The file cannot be read any more.</exception>
    public bool IsShownBy(HttpRequest request)
    {
        if (_file is null || request.Headers.Authorization.ToString() is not { } shown || !shown.StartsWith(Scheme, StringComparison.OrdinalIgnoreCase))
            return false;
        // Digests have the same length for any input, so the comparison always takes the same time.
        return CryptographicOperations.FixedTimeEquals(Digest(shown[Scheme.Length..].Trim()), Digest(Read(_file)));
    }

    private static byte[] Digest(string token) => SHA256.HashData(Encoding.UTF8.GetBytes(token));

    private static string Read(string file)
    {
        try
        {
            var token = File.ReadAllText(file).Trim();
            return token.Length >= LengthMin ? token : throw new UnusableFileException(file, $"the token must have at least {LengthMin} characters");
        }
        catch (Exception failure) when (failure is IOException or UnauthorizedAccessException)
        {
            throw new UnusableFileException(file, failure.Message);
        }
    }
}
