-- A star anywhere means all columns.
SELECT WatchID FROM hits WHERE cityHash64(tuple(*)) % 64 = 0 ORDER BY WatchID;
SELECT count() FROM (SELECT CounterID, cityHash64(tuple(*)) AS h FROM hits) WHERE h % 2 = 0;
SELECT count() FROM visits GROUP BY tuple(*) ORDER BY count() LIMIT 3;
SELECT uniqExact(*) FROM visits;
-- A place in the SELECT list, here of a star.
SELECT VisitID FROM (SELECT * FROM visits ORDER BY 3, 1, 2 LIMIT 5) ORDER BY VisitID;
SELECT Note, VisitID, Version FROM visits ORDER BY 1, 2, 3 LIMIT 7;
SELECT Note, VisitID, Version FROM visits ORDER BY ALL LIMIT 7;
-- FROM that reads no table.
SELECT count() FROM visits WHERE Version IS NOT DISTINCT FROM Pages;
SELECT count() FROM visits WHERE nullIf(Pages, 5) IS DISTINCT FROM nullIf(Version, 2);
SELECT Pages, count() FROM visits WHERE Pages < 9 GROUP BY Pages ORDER BY Pages WITH FILL FROM 0 TO 20 STEP 1;
WITH RECURSIVE steps AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM steps WHERE n < 5)
SELECT RegionID FROM regions WHERE RegionID IN (SELECT n FROM steps) ORDER BY RegionID;
-- LIMIT BY after GROUP BY, and a name given inside WHERE.
SELECT Version, Note, count() FROM visits GROUP BY Version, Note ORDER BY Version, Note LIMIT 1 BY Version LIMIT 5;
SELECT Version, Note, count() FROM visits GROUP BY Version, Note ORDER BY Version, Note LIMIT 2 BY Version;
SELECT VisitID FROM visits WHERE (Pages + 1 AS Pages) = 5 ORDER BY VisitID;
SELECT Version, count() FROM visits WHERE (Pages + 1 AS Pages) = 5 GROUP BY Version ORDER BY Version;
-- Settings that change what a condition means.
SELECT count() FROM hits WHERE EventTime > toDateTime('2013-07-15 12:00:00') SETTINGS session_timezone = 'Asia/Tokyo';
SELECT count() FROM visits WHERE nullIf(Pages, 5) IN (1, NULL) SETTINGS transform_null_in = 1;
-- A last SELECT in brackets, before FORMAT.
SELECT RegionID FROM regions WHERE RegionID < 5 EXCEPT (SELECT RegionID FROM regions WHERE RegionID < 4);
