using System.IO.Compression;

namespace KvCluster.Cli.Files;

/// <summary>
/// Reads records, key TAB value, one a line, from a file, a gzip file (by its first bytes) or standard input. No escapes; bytes stay
/// as they are. One thread. A line that is no record is a <see cref="CliException"/> with its number; what stands before it has been given out.
/// </summary>
internal sealed class TsvReader : IDisposable
{
    private const int ChunkBytes = 1 << 20;
    private const int ReadBytesMin = 1 << 12;
    private const int KeyBytesMax = 2048;
    private const int ValueBytesMax = 8 << 20;
    private const byte Tab = (byte)'\t';
    private const byte NewLine = (byte)'\n';

    private readonly string _name;
    private readonly Stream _file;
    private readonly Stream _stream;
    private byte[] _chunk = [];
    private int _start;
    private int _end;
    private bool _isAtEnd;

    private TsvReader(string name, Stream file, Stream stream)
    {
        _name = name;
        _file = file;
        _stream = stream;
    }

    /// <summary>Lines read so far.</summary>
    public long Lines { get; private set; }

    /// <summary>How much of the file has been read, from 0 to 1; null where nobody knows its length.</summary>
    public double? Fraction => _file is FileStream { CanSeek: true, Length: > 0 } file ? (double)file.Position / file.Length : null;

    /// <param name="path">A file, or "-" for standard input.</param>
    /// <exception cref="CliException">It cannot be opened.</exception>
    public static TsvReader Open(string path)
    {
        if (path == "-")
        {
            var input = Console.OpenStandardInput();
            return new TsvReader("standard input", input, input);
        }

        try
        {
            var file = new FileStream(path, FileMode.Open, FileAccess.Read, FileShare.ReadWrite, ChunkBytes, FileOptions.SequentialScan);
            return new TsvReader(path, file, IsGzip(file) ? new GZipStream(file, CompressionMode.Decompress) : file);
        }
        catch (Exception e) when (e is IOException or UnauthorizedAccessException)
        {
            throw new CliException(ExitCodes.Usage, $"{path} cannot be read: {e.Message}");
        }
    }

    /// <exception cref="CliException">The line is no record, or the file cannot be read on.</exception>
    public bool TryRead(out TsvRecord record)
    {
        record = default;
        if (!TryReadLine(out var line))
            return false;
        Lines++;
        var tab = line.Span.IndexOf(Tab);
        if (tab < 0)
            throw Wrong("has no tab between key and value");
        if (tab == 0)
            throw Wrong("has an empty key");
        if (tab > KeyBytesMax)
            throw Wrong($"has a key of {tab} bytes; at most {KeyBytesMax} are allowed");
        if (line.Length - tab - 1 > ValueBytesMax)
            throw Wrong($"has a value of {line.Length - tab - 1} bytes; at most {ValueBytesMax} are allowed");
        record = new TsvRecord(Lines, line[..tab], line[(tab + 1)..]);
        return true;
    }

    /// <summary>Passes over lines without looking at what they hold.</summary>
    public void Skip(long lines)
    {
        while (Lines < lines && TryReadLine(out _))
            Lines++;
    }

    public void Dispose()
    {
        _stream.Dispose();
        _file.Dispose();
    }

    private bool TryReadLine(out ReadOnlyMemory<byte> line)
    {
        var searched = _start;
        while (true)
        {
            var length = _chunk.AsSpan(searched, _end - searched).IndexOf(NewLine);
            if (length >= 0)
            {
                line = _chunk.AsMemory(_start, searched + length - _start);
                _start = searched + length + 1;
                return true;
            }

            if (_isAtEnd)
            {
                // The last line may lack its end.
                line = _chunk.AsMemory(_start, _end - _start);
                _start = _end;
                return line.Length > 0;
            }

            var passed = _end - _start;
            ReadMore();
            searched = _start + passed;
        }
    }

    private void ReadMore()
    {
        if (_chunk.Length - _end < ReadBytesMin)
            BeginChunk();
        try
        {
            var read = _stream.Read(_chunk, _end, _chunk.Length - _end);
            _end += read;
            _isAtEnd = read == 0;
        }
        catch (Exception e) when (e is IOException or InvalidDataException)
        {
            throw new CliException(ExitCodes.Usage, $"{_name} cannot be read after line {Lines}: {e.Message}");
        }
    }

    // With the part of a line that the old chunk ends with; the old one lives as long as its records.
    private void BeginChunk()
    {
        var part = _end - _start;
        if (part > KeyBytesMax + ValueBytesMax + 1)
        {
            Lines++;
            throw Wrong($"is longer than the {KeyBytesMax + ValueBytesMax + 1} bytes that a record can have");
        }

        var chunk = new byte[Math.Max(ChunkBytes, part * 2)];
        _chunk.AsSpan(_start, part).CopyTo(chunk);
        (_chunk, _start, _end) = (chunk, 0, part);
    }

    private CliException Wrong(string how) => new(ExitCodes.Usage, $"{_name}: line {Lines} {how}.");

    private static bool IsGzip(FileStream file)
    {
        Span<byte> magic = stackalloc byte[2];
        var read = file.ReadAtLeast(magic, magic.Length, throwOnEndOfStream: false);
        file.Position = 0;
        return read == magic.Length && magic[0] == 0x1F && magic[1] == 0x8B;
    }
}
