using System.Text;
using System.Text.Json;
using Microsoft.Win32.SafeHandles;

namespace KvCluster.Cli;

/// <summary>
/// Standard output: bytes as they are, or JSON with stable names. Written through the bare handle, because the console's own stream swallows
/// a closed pipe, after which a scan would go on for nobody. One thread at a time; flushed by Program before it ends.
/// </summary>
internal sealed class Output(bool isJson) : IDisposable
{
    private const int BufferBytes = 1 << 16;

    private static readonly JsonSerializerOptions Json = new()
    {
        PropertyNamingPolicy = JsonNamingPolicy.SnakeCaseLower,
        // For terminals and files, never for HTML: text stays readable.
        Encoder = System.Text.Encodings.Web.JavaScriptEncoder.UnsafeRelaxedJsonEscaping,
    };

    private readonly Stream _stream = new BufferedStream(OpenStandardOutput(), BufferBytes);

    /// <summary>Whether `--output json` was given.</summary>
    public bool IsJson { get; } = isJson;

    /// <exception cref="OutputClosedException">Nobody takes it any more.</exception>
    public void Bytes(ReadOnlySpan<byte> bytes)
    {
        try
        {
            _stream.Write(bytes);
        }
        catch (IOException e)
        {
            throw new OutputClosedException(e);
        }
    }

    /// <inheritdoc cref="Bytes"/>
    public void Line(string text) => Bytes(Encoding.UTF8.GetBytes(text + "\n"));

    /// <summary>One JSON document on a line of its own.</summary>
    /// <inheritdoc cref="Bytes"/>
    public void Document<T>(T document)
    {
        Bytes(JsonSerializer.SerializeToUtf8Bytes(document, Json));
        Bytes("\n"u8);
    }

    /// <inheritdoc cref="Bytes"/>
    public void Flush()
    {
        try
        {
            _stream.Flush();
        }
        catch (IOException e)
        {
            throw new OutputClosedException(e);
        }
    }

    // What could not be written has been told already; another attempt would hide that.
    public void Dispose() => GC.SuppressFinalize(_stream);

    private static Stream OpenStandardOutput() => OperatingSystem.IsWindows()
        ? Console.OpenStandardOutput()
        : new FileStream(new SafeFileHandle(1, ownsHandle: false), FileAccess.Write, bufferSize: 0);
}
