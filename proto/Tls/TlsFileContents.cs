namespace KvCluster.Tls;

/// <summary>
/// The text of TLS files, read once and then compared and parsed, so that what is compared is what is used. Empty for a file that is not named.
/// </summary>
internal readonly record struct TlsFileContents(string Authority, string Certificate, string Key)
{
    /// <summary>A larger file is not a PEM file with certificates. A machine's bundle of authorities has a quarter of this.</summary>
    private const long FileBytesMax = 1 << 20;

    /// <exception cref="UnusableFileException">A file cannot be read.</exception>
    public static TlsFileContents Read(TlsFiles files)
    {
        var certificate = Read(files.CertificateFile);
        return new TlsFileContents(Read(files.AuthorityFile), certificate, files.KeyFile is null ? certificate : Read(files.KeyFile));
    }

    private static string Read(string? file)
    {
        if (file is null)
            return "";
        try
        {
            if (Directory.Exists(file))
                throw new UnusableFileException(file, "it is a directory");
            if (new FileInfo(file) is { Exists: true, Length: > FileBytesMax })
                throw new UnusableFileException(file, $"it has more than {FileBytesMax} bytes");
            return File.ReadAllText(file);
        }
        catch (Exception failure) when (failure is IOException or UnauthorizedAccessException or ArgumentException)
        {
            throw new UnusableFileException(file, failure.Message);
        }
    }
}
